#!/usr/bin/env bash

#$ -N dask-worker
#$ -q all.q
#$ -P myproject
#$ -l h_vmem=4G
#$ -l h_rt=04:00:00
#$ -e logs/
#$ -o logs/
#$ -cwd
#$ -j y
#$ -pe smp 16
python -m distributed.cli.dask_worker tls://SCHEDULER --name dummy-name --nthreads 16 --memory-limit 64.00GiB --nanny --death-timeout 60 --dashboard-address 127.0.0.1:0 --interface lo --protocol tls:// --tls-ca-file /home/user/tls/certificate.pem --tls-cert /home/user/tls/certificate.pem --tls-key /home/user/tls/key.pem
