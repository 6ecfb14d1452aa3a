"""Names of clusters: every form, and a sentence for what has none."""

import pytest

from psmds_dist import InputError
from psmds_dist.deploy.names import parse_cluster


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("local", "local", ""),
        ("local:4", "local", "4"),
        ("tcp://10.0.0.1:8786", "address", "tcp://10.0.0.1:8786"),
        ("tls://[::1]:8786", "address", "tls://[::1]:8786"),
        ("node-1.cluster:8786", "address", "node-1.cluster:8786"),
        ("/shared/scheduler.json", "file", "/shared/scheduler.json"),
        ("slurm", "slurm", ""),
        ("slurm:my.yaml", "slurm", "my.yaml"),
        ("pbs:a/b.yaml", "pbs", "a/b.yaml"),
        ("lsf", "lsf", ""),
        ("sge:x", "sge", "x"),
        ("ssh:hosts.txt", "ssh", "hosts.txt"),
        ("kubernetes:c.yaml", "kubernetes", "c.yaml"),
        ("package.module:function", "function", "package.module:function"),
        ("module:function", "function", "module:function"),
        ("package.module.function", "function", "package.module.function"),
    ],
)
def test_names(name, kind, value):
    assert parse_cluster(name) == (kind, value)


def test_a_file_that_exists_is_a_scheduler_file(tmp_path):
    place = tmp_path / "scheduler"
    place.touch()
    assert parse_cluster(str(place)) == ("file", str(place))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "cluster '' is not known: use one of local, local:4"),
        ("nonsense", "cluster 'nonsense' is not known"),
        ("four workers", "is not known"),
        ("local:0", "must end with a number of workers, such as local:4"),
        ("local:x", "must end with a number of workers"),
        ("local:-1", "must end with a number of workers"),
        ("ssh:", "cluster 'ssh:' must name a file"),
        ("kubernetes", "cluster 'kubernetes' must name a file"),
        ("my.yaml", "does not say what kind it is: put it in front, such as slurm:my.yaml"),
        ("a.b:c:d", "is not known"),
    ],
)
def test_other_names_are_explained(name, sentence):
    with pytest.raises(InputError) as error:
        parse_cluster(name)
    assert sentence in str(error.value)
