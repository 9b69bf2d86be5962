"""What a page pays for when it imports the library."""

import pkgutil
import subprocess
import sys

import kvcore

HEAVY = ("kvcore.decoding", "kvcore.attention", "kvcore.quality")


def modules():
    found = pkgutil.walk_packages(kvcore.__path__, "kvcore.")
    return [module.name for module in found if not module.name.startswith(HEAVY)]


def test_kvcore_imports_neither_streamlit_nor_torch():
    code = (
        "import importlib, sys\n"
        f"for name in {modules()!r}: importlib.import_module(name)\n"
        "loaded = {'streamlit', 'torch', 'transformers'} & set(sys.modules)\n"
        "sys.exit(' '.join(sorted(loaded)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_module_of_kvcore_imports_streamlit():
    code = (
        "import importlib, pkgutil, sys, kvcore\n"
        "for found in pkgutil.walk_packages(kvcore.__path__, 'kvcore.'):\n"
        "    importlib.import_module(found.name)\n"
        "sys.exit('streamlit' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
