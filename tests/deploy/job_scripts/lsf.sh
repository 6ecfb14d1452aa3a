#!/usr/bin/env bash

#BSUB -J dask-worker
#BSUB -e logs/dummy-name-%J.err
#BSUB -o logs/dummy-name-%J.out
#BSUB -q normal
#BSUB -P "myproject"
#BSUB -n 16
#BSUB -R "span[hosts=1]"
#BSUB -M 68720
#BSUB -W 04:00
python -m distributed.cli.dask_worker tls://SCHEDULER --name dummy-name --nthreads 16 --memory-limit 64.00GiB --nanny --death-timeout 60 --dashboard-address 127.0.0.1:0 --interface lo --protocol tls:// --tls-ca-file /home/user/tls/certificate.pem --tls-cert /home/user/tls/certificate.pem --tls-key /home/user/tls/key.pem
