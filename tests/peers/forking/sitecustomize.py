"""An interpreter imports this as it starts; the one that tests start forks here for each command that it is asked for.

In a fork it goes on from here as at any start: to the program, with the arguments of that command.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
from typing import Any

_STATUS = struct.Struct("i")


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Fork a command for each request, and say how each has ended. It returns in a fork, with what that is to run."""
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in os.environ["ROCKETAPP_TESTS_IMPORT"].split():
        importlib.import_module(name)
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.collect()
    gc.freeze()
    tell: dict[int, int] = {}
    while True:
        ready = select.select([connection.fileno(), woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            for pid in tuple(tell):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    descriptor = tell.pop(pid)
                    os.write(descriptor, _STATUS.pack(os.waitstatus_to_exitcode(status)))
                    os.close(descriptor)
        if connection.fileno() in ready:
            request, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
            if not request:
                for pid in tell:
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, heard)
                os.dup2(descriptors[0], 1)
                os.dup2(descriptors[1], 2)
                os.closerange(3, 4096)
                connection.detach()
                return dict(json.loads(request))
            tell[pid] = descriptors.pop()
            for descriptor in descriptors:
                os.close(descriptor)
            connection.send(str(pid).encode())


def _become(request: dict[str, Any]) -> None:
    """Be as a process that was just started for this command."""
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    if request["new_session"]:
        os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]


if "ROCKETAPP_TESTS_FORK" in os.environ:
    _become(_serve(socket.socket(fileno=int(os.environ["ROCKETAPP_TESTS_FORK"]))))
