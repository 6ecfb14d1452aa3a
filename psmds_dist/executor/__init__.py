"""Executors: work in this process, or on the workers of a Dask cluster.

Dask is imported late: small input never waits for it.
"""

from psmds_dist.data.cache import clear_row_cache as clear_row_cache
from psmds_dist.executor._dask_internals import open_jobs as open_jobs
from psmds_dist.executor.arrays import elementwise as elementwise
from psmds_dist.executor.arrays import write_dask_array as write_dask_array
from psmds_dist.executor.cluster import connect as connect
from psmds_dist.executor.cluster import dask_silenced as dask_silenced
from psmds_dist.executor.dask import DaskExecutor as DaskExecutor
from psmds_dist.executor.local import InProcessExecutor as InProcessExecutor
from psmds_dist.executor.local import process_memory as process_memory
from psmds_dist.executor.report import performance_report as performance_report
from psmds_dist.executor.tasks import run_work as run_work
from psmds_dist.executor.tls import tls_configuration as tls_configuration
from psmds_dist.executor.tls import tls_security as tls_security
from psmds_dist.executor.tls import write_certificates as write_certificates
