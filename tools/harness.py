"""Where the null device and the programs that measure over it are, for the tools beside this file.

HARNESS names another folder than null_device/, HARNESS_PYTHON another Python than that of the folder's .venv.
"""
import os

FOLDER = os.path.abspath(os.environ.get("HARNESS") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "null_device"))
PYTHON = os.environ.get("HARNESS_PYTHON") or os.path.join(FOLDER, ".venv", "bin", "python")
NULL = os.path.join(FOLDER, "nullcuda")
LIBRARY = os.path.join(NULL, "libcuda.so.1")
