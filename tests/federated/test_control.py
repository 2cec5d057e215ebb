"""A SuperLink that fails is told of in one line, whatever is asked of it."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

pytestmark = pytest.mark.optional
pytest.importorskip("flwr")

from escala.federated.credentials import AUTHORITY, CERTIFICATE, KEY, make_certificates, make_node_key  # noqa: E402
from escala.federated.federation import APP, make_folder, new_settings  # noqa: E402
from escala.federated.flower import Control, Unanswered  # noqa: E402
from federated.boards import scenario  # noqa: E402


class Failing(BaseHTTPRequestHandler):
    """Answers everything with 500, as a SuperLink whose disk is full does."""

    def do_POST(self):
        self.send_response(500)
        self.end_headers()

    def log_message(self, *words):
        """Say nothing."""


@pytest.fixture
def control(tmp_path):
    make_certificates(tmp_path)
    server = HTTPServer(("127.0.0.1", 0), Failing)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / CERTIFICATE, tmp_path / KEY)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = Control(f"127.0.0.1:{server.server_port}", (tmp_path / AUTHORITY).read_bytes())
    yield made
    made.close()
    server.shutdown()
    server.server_close()


def test_a_superlink_that_fails_takes_no_node_and_no_run_and_says_so(control, tmp_path):
    make_node_key(tmp_path / "node")
    make_folder(new_settings(scenario(), tmp_path / "run", rounds=1, task="digits"), 1)

    with pytest.raises(Unanswered, match=r"admits no node .*500.*--resume"):
        control.register((tmp_path / "node.pub").read_bytes(), "client-0")
    with pytest.raises(Unanswered, match=r"takes no run .*500.*--resume"):
        control.submit(tmp_path / "run" / APP)
    assert not control.is_up()
    assert control.online() is None
