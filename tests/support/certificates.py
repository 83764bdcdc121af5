"""Certificates for tests: an authority, and what it signs for a server on loopback."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


class Authority:
    """Signs certificates that hold for a day, with all extensions that Python requires since 3.13."""

    def __init__(self, name: str) -> None:
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = dict.fromkeys(USAGES, False) | {"key_cert_sign": True}
        built = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self._certificate = built.add_extension(x509.KeyUsage(**usage), critical=True).sign(self._key, SHA256())

    def write(self, path: Path) -> Path:
        """Write the authority's own certificate, PEM."""
        path.write_bytes(self._certificate.public_bytes(Encoding.PEM))
        return path

    def write_server(self, path: Path) -> Path:
        """Write the key and certificate of a server at localhost and 127.0.0.1, PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        built = self._builder(subject, key).add_extension(x509.SubjectAlternativeName(names), critical=False)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(private + built.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=1),
            not_valid_after=now + timedelta(days=1),
        )
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return builder.add_extension(ours, critical=False)
