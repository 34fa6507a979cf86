"""Real AMQP 1.0 brokers of others, for tests: on loopback with free ports, in a scratch folder, killed and started again at will.

    def test_something(broker: RealBroker) -> None:
        queue = broker.queue()
        with broker.connect() as connection: …

| broker | from |
|---|---|
| ActiveMQ Artemis | Maven Central, as the bench has it |
| RabbitMQ 3 with its plugin for AMQP 1.0 | Debian's package rabbitmq-server, run as a process of ours |
| Qpid Broker-J | Maven Central |

Each is started once in a session, when a test first asks for it. `queue` gives a queue of its own to each test that asks: they
are there from the start, durable, since making one by management takes a second or more.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.broker_core.client.amqp import Connection, connect
from penstock.broker_core.errors import PeerError, Unauthenticated

from . import artemis
from .artemis import Artemis as Instance
from .artemis import held_port
from .programs import STOP_LIMIT_S, Group, needs
from .waiting import until

#: Queues that each broker has; a test takes the next.
QUEUES = 60
USER, PASSWORD = "tester", "pencil"
#: Seconds: the start of a broker on a busy machine.
START_LIMIT_S = 30
BROKER_J = "9.2.0"
#: Octets of a broker's log that an error shows.
SHOWN = 2000
#: A JVM of tests lives for seconds.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class RealBroker(ABC):
    """A running broker. `url`, `user` and `password` are for clients; `words` is a text of its errors."""

    name: ClassVar[str]
    #: The prefix of a queue's name in an address.
    before = ""
    user: str | None = USER
    password: str | None = PASSWORD

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = held_port(self)
        self.url = f"amqp://127.0.0.1:{self.port}"
        self._numbers = itertools.count()
        self._group: Group | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.prepare()
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def prepare(self) -> None:
        """Write the files for the first start."""

    @abstractmethod
    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that becomes the broker, and its environment."""

    @property
    def options(self) -> dict[str, str]:
        """Options of the format `amqp`."""
        return {"url": self.url, "userName": str(self.user), "password": str(self.password)}

    def queue(self) -> str:
        """Return the address of a queue that no other test has."""
        number = next(self._numbers)
        assert number < QUEUES, "more tests than queues: raise QUEUES"
        return f"{self.before}q{number}"

    def connect(self) -> Connection:
        """Return a connection of our client."""
        return connect(self.url, self.user, self.password)

    def start(self) -> None:
        """Start it, on the data that it has, and wait until it lets a client in."""
        command, environment = self.command()
        with open(self.folder / "console.txt", "ab") as console:
            self._group = Group(command, cwd=self.folder, env=environment, stdout=console, stderr=console)
        until(self._lets_in, lambda: f"{self.name} lets a client in: {self._console_tail()}", limit_s=START_LIMIT_S)

    def _lets_in(self) -> bool:
        assert self._group is not None
        try:
            self.connect().close()
        except (PeerError, Unauthenticated):  # some listen before they know their users
            if self._group.process.poll() is not None:
                pytest.fail(f"{self.name} has ended: {self._console_tail()}")
            return False
        return True

    @property
    def pid(self) -> int:
        """The running process, which a test may kill."""
        assert self._group is not None
        return self._group.process.pid

    def kill(self) -> None:
        """Send SIGKILL to the broker and its child processes."""
        group, self._group = self._group, None
        if group is not None:
            group.kill()

    def close(self) -> None:
        """End it; its data are not needed any more."""
        self.kill()

    def _console_tail(self) -> str:
        return (self.folder / "console.txt").read_text(errors="replace")[-SHOWN:]


class Artemis(RealBroker):
    """ActiveMQ Artemis with its default journal, and duplicate detection as it comes."""

    name = "artemis"

    def prepare(self) -> None:
        home = distribution_or_skip()
        queues = [f"q{number}" for number in range(QUEUES)]
        access = [f"--user={USER}", f"--password={PASSWORD}", "--require-login"]
        java = f"{_JVM} -Xmx512m"
        self._made = Instance(home, self.folder / "instance", queues, *access, "--no-autotune", "--nio", java=java)
        self.port, self.url = self._made.port, self._made.url

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the script, which becomes the JVM."""
        return self._made.command


class RabbitMQ(RealBroker):
    """RabbitMQ 3 of Debian. Its users and queues are definitions, loaded at the start; epmd is one of its own."""

    name = "rabbitmq"
    before = "/amq/queue/"  # by its name alone the plugin declares a queue that is not durable

    def prepare(self) -> None:
        needs("rabbitmq-server", "rabbitmq-server")
        definitions = {
            "users": [{"name": USER, "password": PASSWORD, "tags": "administrator"}],
            "vhosts": [{"name": "/"}],
            "permissions": [{"user": USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
            "queues": [
                {"name": f"q{number}", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
                for number in range(QUEUES)
            ],
        }
        (self.folder / "definitions.json").write_text(json.dumps(definitions))
        (self.folder / "plugins").write_text("[rabbitmq_amqp1_0].\n")
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nload_definitions = {self.folder}/definitions.json\n"
        )
        self._names_port, self._nodes_port = held_port(self), held_port(self)

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return Debian's script without the wrapper that becomes the user rabbitmq."""
        home = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))},
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",  # or it does not end while it believes that a killed node lives
            "RABBITMQ_NODENAME": f"penstock-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._nodes_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
        }
        return ["/bin/sh", str(home)], environment

    def close(self) -> None:
        """Stop the broker, and Erlang's name daemon, which has left the process group."""
        self.kill()
        environment = {"ERL_EPMD_PORT": str(self._names_port), "PATH": os.environ["PATH"]}
        subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, timeout=STOP_LIMIT_S, check=False)


class BrokerJ(RealBroker):
    """Qpid Broker-J, its messages in Derby."""

    name = "broker-j"

    def prepare(self) -> None:
        self._home = _or_skip(broker_j)
        user = {"name": USER, "password": PASSWORD, "type": "managed"}
        queues = [{"name": f"q{number}", "type": "standard", "durable": True} for number in range(QUEUES)]
        host = {"name": "default", "type": "DERBY", "storePath": str(self.folder / "messages"), "modelVersion": "9.0"}
        initial = {
            "name": "Broker",
            "modelVersion": "9.0",
            "authenticationproviders": [{"name": "users", "type": "Plain", "users": [user]}],
            "ports": [
                {
                    "name": "AMQP",
                    "type": "AMQP",
                    "port": str(self.port),
                    "bindingAddress": "127.0.0.1",
                    "protocols": ["AMQP_1_0"],
                    "authenticationProvider": "users",
                    "virtualhostaliases": [
                        {"name": "default", "type": "defaultAlias"},
                        {"name": "host", "type": "hostnameAlias"},
                    ],
                }
            ],
            "virtualhostnodes": [
                {
                    "name": "default",
                    "type": "JSON",
                    "defaultVirtualHostNode": "true",
                    "virtualHostInitialConfiguration": json.dumps({**host, "nodeAutoCreationPolicies": [], "queues": queues}),
                }
            ],
        }
        (self.folder / "initial.json").write_text(json.dumps(initial))

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the JVM with the broker's libraries."""
        java = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"
        work = [f"-DQPID_WORK={self.folder / 'work'}", f"-Dqpid.home_dir={self._home}", f"-Dderby.stream.error.file={os.devnull}"]
        initial = ["-icp", str(self.folder / "initial.json")]
        main = ["-cp", f"{self._home}/lib/*:{self._home}/lib/plugins/*", "org.apache.qpid.server.Main"]
        environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
        return [java, *_JVM.split(), "-Xmx512m", *work, *main, *initial], environment


def distribution_or_skip() -> Path:
    """Return the unpacked Artemis; skip the test, or fail in CI, where it cannot be had."""
    return _or_skip(artemis.distribution)


def broker_j() -> Path:
    """Return the unpacked Broker-J, fetched the first time. Raises artemis.Unavailable."""
    name = f"apache-qpid-broker-j-{BROKER_J}"
    return artemis.fetched(f"org.apache.qpid:apache-qpid-broker-j:{BROKER_J}:tar.gz:bin", name, Path("qpid-broker", BROKER_J))


def _or_skip(fetch: Any) -> Path:
    try:
        path: Path = fetch()
    except artemis.Unavailable as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    return path


def started(kind: type[RealBroker], paths: pytest.TempPathFactory) -> Iterator[RealBroker]:
    """Start a broker for a session; for the fixtures in conftest.py."""
    folder = paths.mktemp(kind.name)
    running = kind(folder / "home")
    yield running
    running.close()
    shutil.rmtree(folder, ignore_errors=True)
