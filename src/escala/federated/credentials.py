"""Certificates and keys of a federation: an authority, the server's certificate, a key for each node.

Private keys are readable by their owner only. Written for one federation; knows no process.
"""

import ipaddress
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS: Final = 365
HERE: Final = ("127.0.0.1", "::1", "localhost")
AUTHORITY, CERTIFICATE, KEY, SECRET = "ca.crt", "server.pem", "server.key", "server.secret"
SECRET_BYTES: Final = 32
PRIVATE: Final = 0o600
CLOCKS_APART: Final = timedelta(days=1)
"""Clocks of hosts may differ; a certificate is valid from so long ago."""


def make_certificates(folder: Path, hosts: Sequence[str] = ()) -> None:
    """An authority; certificate and secret of a server that is reached under these names; once a folder."""
    if (folder / CERTIFICATE).exists():
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority = _signed("escala federation", authority_key, "escala federation", authority_key, None)
    names = [_name(each) for each in dict.fromkeys((*hosts, *HERE))]
    server = _signed("SuperLink", key, "escala federation", authority_key, names)
    _write(folder / KEY, _pem(key))
    _write(folder / SECRET, secrets.token_hex(SECRET_BYTES).encode())
    (folder / AUTHORITY).write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    (folder / CERTIFICATE).write_bytes(server.public_bytes(serialization.Encoding.PEM))


def make_node_key(path: Path) -> None:
    """A node's private key (P-384), and beside it, `.pub`, what the server has to know; once a path."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP384R1())
    openssh = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    public = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(*public))
    _write(path, key.private_bytes(*openssh))


def _write(path: Path, content: bytes) -> None:
    """A file that nobody else could read even for a moment."""
    path.touch(mode=PRIVATE)
    path.chmod(PRIVATE)
    path.write_bytes(content)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signed(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    names: list[x509.GeneralName] | None,
) -> x509.Certificate:
    """A certificate: of an authority where there are no names, else of a server with these names."""
    is_authority, now = names is None, datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_common(subject))
        .issuer_name(_common(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_APART)
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .add_extension(_usage(is_authority), critical=True)
    )
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    return builder.sign(issuer_key, hashes.SHA384())


def _usage(is_authority: bool) -> x509.KeyUsage:
    """An authority signs certificates, a server its handshakes."""
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
