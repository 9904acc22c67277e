"""TLS with the certificates of the system, or those that `SSL_CERT_FILE` names."""

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.llm.raw_http import CHUNKED, OK, Answers, asked, http, sent, served


def certificate(folder: Path, address: str) -> Path:
    """A file with a new key and a certificate that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a model's test")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{address}.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


def server_side(path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


async def test_trusted_server_is_read_and_its_connection_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    server = Answers([OK], [CHUNKED, b"1\r\na\r\n", b"0\r\n\r\n"])
    async with served(server, tls=server_side(path)) as url, http() as client:
        assert await asked(client, url) == (200, b"ok")
        assert await asked(client, url) == (200, b"a")
    assert server.connections == 1


async def test_body_of_a_large_request_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    body = b"x" * (4 << 20)
    server = Answers([OK])
    async with served(server, tls=server_side(path)) as url, http() as client:
        response = await sent(client, url, body=body)
        assert response.status == 200
        response.release(is_done=False)
    assert server.requests[0].endswith(b"\r\n\r\n" + body)


async def test_server_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    path = certificate(tmp_path, "127.0.0.1")
    async with served(Answers([OK]), tls=server_side(path)) as url, http() as client:
        with pytest.raises(ssl.SSLCertVerificationError):
            await sent(client, url)


async def test_server_with_anothers_certificate_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path, "127.0.0.2")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    async with served(Answers([OK]), tls=server_side(path)) as url, http() as client:
        with pytest.raises(ssl.SSLCertVerificationError):
            await sent(client, url)
