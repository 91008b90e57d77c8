# Makes `bottletop.probe` importable in the programs that `bottletop run` starts.
#
# `bottletop run` puts this folder in front of PYTHONPATH, so every Python that the program starts
# runs this file, also one of another version that has no bottletop installed. It then does two
# things: it runs the sitecustomize that would have been found without this folder, and it offers
# the probe as the last resort of the import system, so that an installed bottletop wins. The probe
# itself is loaded when the program imports it. The folder stays on the path for child processes.
#
# Written for any Python, since the program may be started with any: where this file cannot help, it
# does nothing. It prints nothing, whatever happens.
#
# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys


def _offer_probe():
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import spec_from_file_location

    probe = os.path.join(os.path.dirname(_here()), "probe.py")

    class ProbeFinder:
        """Finds `bottletop.probe` where nothing else does."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "bottletop":
                return ModuleSpec(name, None, is_package=True)
            if name == "bottletop.probe":
                return spec_from_file_location(name, probe)
            return None

    sys.meta_path.append(ProbeFinder)


def _next_sitecustomize():
    from _frozen_importlib_external import PathFinder

    here = _here()
    path = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    return PathFinder.find_spec("sitecustomize", path)


def _here():
    return os.path.dirname(os.path.abspath(__file__))


_spec = None
try:
    if sys.version_info >= (3, 8):  # noqa: UP036 - the program's Python, not ours
        _offer_probe()
    _spec = _next_sitecustomize()
except Exception:
    pass
if _spec is not None and _spec.loader is not None:
    # Its errors are its own, and are reported as they would be without us.
    from _frozen_importlib import module_from_spec

    _module = module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
