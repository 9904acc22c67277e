"""An authority of a company's own, and certificates that it signs."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class PrivateAuthority:
    """`path` holds its own certificate."""

    def __init__(self, folder: Path, name: str = "the company's authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = _builder(self._name, self._name, self._key, is_authority=True).sign(
            self._key, hashes.SHA256()
        )
        self.path = folder / "authority.pem"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def hashed_folder(self) -> Path:
        """A folder as OpenSSL looks certificates up in: by the hash of their names."""
        folder = self._folder / "authorities"
        folder.mkdir(exist_ok=True)
        (folder / f"{_subject_hash(self._certificate)}.0").write_bytes(self.path.read_bytes())
        return folder

    def signed(self, name: str, *others: str) -> Path:
        """A file with a new key and its certificate, for these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_general(one) for one in (name, *others)])
        certificate = (
            _builder(_name(name), self._name, key)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self._folder / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return path

    def server_side(self, *names: str, wants_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.signed(*names))
        if wants_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.path)
        return context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool = False,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )


def _subject_hash(certificate: x509.Certificate) -> str:
    """OpenSSL's: of the name in lower case, each value as UTF-8, without the outer frame."""

    (attribute,) = certificate.subject
    value = str(attribute.value).lower().encode()
    text = b"\x0c" + bytes([len(value)]) + value
    oid = bytes.fromhex("0603550403")
    pair = b"\x30" + bytes([len(oid) + len(text)]) + oid + text
    canonical = b"\x31" + bytes([len(pair)]) + pair
    first = hashlib.sha1(canonical, usedforsecurity=False).digest()[:4]
    return first[::-1].hex()
