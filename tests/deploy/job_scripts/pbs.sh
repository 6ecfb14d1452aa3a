#!/usr/bin/env bash

#PBS -N dask-worker
#PBS -q workq
#PBS -A myproject
#PBS -l select=1:ncpus=16:mem=64GB
#PBS -l walltime=04:00:00
#PBS -e logs/
#PBS -o logs/
python -m distributed.cli.dask_worker tls://SCHEDULER --name dummy-name --nthreads 16 --memory-limit 64.00GiB --nanny --death-timeout 60 --dashboard-address 127.0.0.1:0 --interface lo --protocol tls:// --tls-ca-file /home/user/tls/certificate.pem --tls-cert /home/user/tls/certificate.pem --tls-key /home/user/tls/key.pem
