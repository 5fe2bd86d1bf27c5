"""Clusters that ask who is there: Apache RocketMQ 5.5.0 with TLS, users and permissions, and 4.9.7 with plain ACL."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

from rocketapp.wire.lenient_json import loads
from rocketapp.wire.signing import Keys
from tests.peers import toolchain
from tests.peers.bare import GET_ROUTE, Bare
from tests.peers.clusters import Apache
from tests.peers.waiting import wait_until
from tests.unit.certificates import Authority

ADMIN, ADMIN_SECRET = "administrator", "admin-secret-1"
READER, READER_SECRET = "reader-only", "reader-secret-2"
CREATE_USER, UPDATE_USER, CREATE_ACL, GET_MAX_OFFSET = 3001, 3002, 3006, 30
_PROVIDER = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
WITH_KEYS = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    f"authenticationMetadataProvider={_PROVIDER.format('authentication', 'Authentication')}",
    f"authorizationMetadataProvider={_PROVIDER.format('authorization', 'Authorization')}",
    "initAuthenticationUser=" + json.dumps({"username": ADMIN, "password": ADMIN_SECRET}),
    "innerClientAuthenticationCredentials=" + json.dumps({"accessKey": "inner-client", "secretKey": "inner-secret-3"}),
)
"""Lines of broker.conf for an Apache RocketMQ that asks for keys."""


class Secured:
    """5.5.0: name server and broker want TLS, the broker wants signatures, and a user has what it was given."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        authority = Authority(directory)
        shown = authority.issue("server", names="IP:127.0.0.1")
        self.ca_file = str(authority.cert)
        self._context = ssl.create_default_context(cafile=self.ca_file)
        self.apache = Apache(
            directory / "apache",
            conf=WITH_KEYS,
            options=(
                *toolchain.BRIEF,
                "-Dtls.server.mode=enforcing",
                "-Dtls.test.mode.enable=false",
                f"-Dtls.server.certPath={shown.cert}",
                f"-Dtls.server.keyPath={shown.key}",
            ),
            tls=self._context,
        )
        try:
            self._add_reader()
        except BaseException:
            self.stop()
            raise

    def environment(self, access_key: str = ADMIN, secret_key: str = ADMIN_SECRET) -> dict[str, str]:
        """What an app or a command needs to be let in."""
        return {
            "ROCKETAPP_CLIENT__TLS": "true",
            "ROCKETAPP_CLIENT__CA_FILE": self.ca_file,
            "ROCKETAPP_CLIENT__ACCESS_KEY": access_key,
            "ROCKETAPP_CLIENT__SECRET_KEY": secret_key,
        }

    def _add_reader(self) -> None:
        """A user that may consume topics of one prefix, and send nothing."""
        entries = [
            {"resource": resource, "actions": ["Sub", "Get"], "decision": "Allow"}
            for resource in ("Topic:open*", "Group:*")
        ]
        user = {"username": READER, "password": READER_SECRET, "userType": "Normal", "userStatus": "enable"}
        acl = {"subject": f"User:{READER}", "policies": [{"policyType": "Custom", "entries": entries}]}
        self._ask(CREATE_USER, {"username": READER}, user)
        self._ask(CREATE_ACL, {"subject": f"User:{READER}"}, acl)

    def set_reader(self, status: str) -> None:
        """`enable` or `disable` that user."""
        self._ask(UPDATE_USER, {"username": READER}, {"username": READER, "userStatus": status})

    def addresses(self) -> dict[str, str]:
        """What the name server says where the broker is, by broker id."""
        with Bare(self.apache.name_server, tls=self._context) as asking:
            (broker,) = loads(asking.ask(GET_ROUTE, topic="TBW102").body)["brokerDatas"]
        return dict(broker["brokerAddrs"])

    def _ask(self, code: int, fields: dict[str, str], content: dict[str, object]) -> None:
        """As the administrator."""
        body = json.dumps(content).encode()
        with Bare(self.apache.broker_address, tls=self._context) as asking:
            answer = asking.ask(code, body, **Keys(access_key=ADMIN, secret_key=ADMIN_SECRET).sign(fields, body))
        assert answer.code == 0, (code, answer)

    def stop(self) -> None:
        self.apache.stop()


class Old:
    """4.9.7, whose access control lets everybody in at first."""

    def __init__(self, directory: Path) -> None:
        conf = directory / "conf"
        conf.mkdir(parents=True)
        for name in ("logback_namesrv.xml", "logback_broker.xml"):
            (conf / name).write_text("<configuration/>\n")
        self._accounts = conf / "plain_acl.yml"
        self._let_in("127.0.0.1")
        opened = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref")
        options = [*toolchain.BRIEF, *(f"--add-opens={each}=ALL-UNNAMED" for each in opened)]
        self.apache = Apache(directory, conf=("aclEnable=true",), options=options, lib=toolchain.jars_of_4())

    def _let_in(self, *addresses: str) -> None:
        """With the keys of an administrator, and from these addresses without any."""
        account = f"- accessKey: {ADMIN}\n  secretKey: {ADMIN_SECRET}\n  admin: true\n"
        self._accounts.write_text(f"globalWhiteRemoteAddresses: {json.dumps(addresses)}\naccounts:\n{account}")

    def want_keys(self) -> None:
        """Of everybody. The broker looks at its file every few seconds."""
        self._let_in()
        wait_until(self._refuses_strangers, within=30, what="the broker wants keys", every=0.2)

    def _refuses_strangers(self) -> bool:
        with Bare(self.apache.broker_address) as asking:
            return asking.ask(GET_MAX_OFFSET, topic="TBW102", queueId=0).code != 0

    def stop(self) -> None:
        self.apache.stop()
