"""What proves server and nodes: chain, names, and who may read the keys."""

import ssl
import stat

import pytest

pytest.importorskip("cryptography")
pytestmark = pytest.mark.optional

from escala.federated import credentials  # noqa: E402


def test_keys_are_for_their_owner_only_and_made_once(tmp_path):
    credentials.make_certificates(tmp_path / "c", ["fl.example.org"])
    credentials.make_node_key(tmp_path / "c" / "node-0")
    before = {each.name: each.read_bytes() for each in (tmp_path / "c").iterdir()}

    credentials.make_certificates(tmp_path / "c")
    credentials.make_node_key(tmp_path / "c" / "node-0")

    assert {each.name: each.read_bytes() for each in (tmp_path / "c").iterdir()} == before
    for name in ("server.key", "node-0"):
        assert stat.S_IMODE((tmp_path / "c" / name).stat().st_mode) == 0o600
    assert before["node-0.pub"].startswith(b"ecdsa-sha2-nistp384 ")


def test_the_certificate_is_signed_by_the_authority_and_names_the_host(tmp_path):
    credentials.make_certificates(tmp_path, ["fl.example.org"])
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.create_default_context(cafile=str(tmp_path / "ca.crt")),
    )
    server.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")

    def greeted(name):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        here = client.wrap_bio(to_client, to_server, server_hostname=name)
        there = server.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for end in (here, there):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        return here.getpeercert() is not None and here.version()

    assert greeted("fl.example.org") == "TLSv1.3"
    assert greeted("127.0.0.1") == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.example\.org"):
        greeted("other.example.org")
