"""Credentials appear in no name, message, result or log."""

import pickle

import pytest

pytest.importorskip(
    "ringsum.cluster",
    reason="dask.distributed is not installed: pip install 'ringsum[cluster]'",
    exc_type=ImportError,
)

from ringsum.cluster.secrets import StorageOptions, public_name


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("https://user:pass@host/a", "https://host/a"),
        ("sftp://user:pass@host:22/a", "sftp://host:22/a"),
        ("sftp://user@host/a", "sftp://user@host/a"),
        (
            "https://h/a?X-Amz-Signature=abc&versionId=1",
            "https://h/a?X-Amz-Signature=***&versionId=1",
        ),
        ("https://h/a?X-Amz-Security-Token=abc", "https://h/a?X-Amz-Security-Token=***"),
        ("https://h/a?sv=1&sig=abc", "https://h/a?sv=1&sig=***"),
        ("https://h/a?access_token=abc", "https://h/a?access_token=***"),
        ("https://h/a?page=2", "https://h/a?page=2"),
        ("s3://bucket/a@b?sig=c", "s3://bucket/a@b?sig=c"),
        ("/path/a@b?sig=c", "/path/a@b?sig=c"),
    ],
)
def test_public_names(name, public):
    assert public_name(name) == public


def test_options_hide_their_values():
    options = StorageOptions(
        {"s3": {"key": "AKIA1234", "secret": "hunter22", "endpoint_url": "http://127.0.0.1:1"}}
    )
    assert "hunter22" not in repr(options) and "AKIA1234" not in repr(options)
    assert pickle.loads(pickle.dumps(options)).of("s3")["secret"] == "hunter22"
    text = "refused hunter22 of AKIA1234 at http://127.0.0.1:1 and https://u:p@h/x?sig=y"
    assert options.scrub(text) == "refused *** of *** at http://127.0.0.1:1 and https://h/x?sig=***"


def test_options_must_be_by_protocol():
    with pytest.raises(TypeError, match="must be a dict"):
        StorageOptions({"key": "x"})
