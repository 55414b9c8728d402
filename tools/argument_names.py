"""Writes down what the projects whose configurations are written call their settings: argument_names.py FOLDER > tests/fixtures/arguments.json

FOLDER holds their wheels and archives as `pip download --no-deps` puts them there, transformers' too. The fields of the classes that read a
file are taken from the source, with those of their bases; nothing is imported. torchtune has no such class: its names are those of its recipes'
own files and what their code reads. torchtitan's tables are the fields of one class, and Megatron-LM's names the options that its parser adds; of
Megatron-LM the folder holds the archive of a tag (Megatron-LM-core_v0.16.1.tar.gz). `tests/configurations.rs` holds every file that is written against these names; whether the classes take the values
too is `check_configurations.py`'s affair, which has to have the projects installed.
"""
import ast
import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path

# what reads a file: the packages, the classes whose fields are its names, those of the tables within it
CLASSES = {
    "trl": (["trl", "transformers"], ["ScriptArguments", "SFTConfig", "ModelConfig", "DatasetMixtureConfig"], {}),
    "axolotl": (["axolotl"], ["AxolotlInputConfig", "LigerArgs", "CutCrossEntropyArgs"], {"fsdp_config": ["FSDPConfig"]}),
    "llama-factory": (["llamafactory", "transformers"],
                      ["ModelArguments", "DataArguments", "Seq2SeqTrainingArguments", "FinetuningArguments", "GeneratingArguments"], {}),
    "accelerate": (["accelerate"], ["ClusterConfig"], {}),
    "vllm": (["vllm"], ["AsyncEngineArgs", "FrontendArgs"], {}),
    "deepspeed": (["deepspeed"], [], {"zero_optimization": ["DeepSpeedZeroConfig"]}),
}


def sources(archive):
    """Path and text of every file of Python or YAML."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if name.endswith((".py", ".yaml")):
                    yield name, opened.read(name).decode("utf8", "replace")
    else:
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isfile() and member.name.endswith(".py"):
                    yield member.name, opened.extractfile(member).read().decode("utf8", "replace")


def classes_of(texts):
    """By class: its bases and the names of its fields."""
    found = {}
    for _, text in texts:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).rsplit(".", 1)[-1] for base in node.bases]
                fields = [line.target.id for line in node.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)]
                # pydantic's other names: `Field(False, alias="stage3_gather_16bit_weights_on_model_save")`
                fields += [word.value.value for line in node.body if isinstance(line, ast.AnnAssign) and isinstance(line.value, ast.Call)
                           for word in line.value.keywords if word.arg == "alias" and isinstance(word.value, ast.Constant)]
                known = found.setdefault(node.name, ([], []))
                known[0].extend(bases)
                known[1].extend(fields)
    return found


def fields(classes, name, seen):
    if name in seen or name not in classes:
        return set()
    bases, own = classes[name]
    return set(own).union(*(fields(classes, base, seen | {name}) for base in bases))


def names_of_yaml(text):
    """The names of a plain file of YAML, those of tables with the table's before them."""
    way = []
    for line in text.splitlines():
        match = re.match(r"( *)(?:- )?([A-Za-z_]\w*):(?: |$)", line)
        if match:
            depth = len(match[1]) // 2
            way = way[:depth] + [match[2]]
            yield ".".join(way)


def of_torchtitan(texts):
    """The names of torchtitan's tables: each field of `JobConfig` is a table, of the class that it is annotated with."""
    tree = ast.parse(next(text for path, text in texts if path == "torchtitan/config/job_config.py"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    fields = lambda name: [(line.target.id, ast.unparse(line.annotation)) for line in classes[name].body if isinstance(line, ast.AnnAssign)]
    return {f"{table}.{name}" for table, of in fields("JobConfig") for name, _ in fields(of)}


def of_megatron(texts):
    """The options of Megatron-LM's parser: those that it adds, and those of the fields of the classes that it is made from
    (megatron/training/argument_utils.py `ArgumentGroupFactory`), where switches that are on are called `no` and `disable`."""
    parser = next(text for path, text in texts if path.endswith("megatron/training/arguments.py"))
    names = set()
    for call in ast.walk(ast.parse(parser)):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument":
            names |= {word.value for word in call.args if isinstance(word, ast.Constant)}
    classes = {node.name: node for _, text in texts for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}

    def of_class(name):
        if name not in classes:
            return
        for base in classes[name].bases:
            yield from of_class(ast.unparse(base))
        for line in classes[name].body:
            if isinstance(line, ast.AnnAssign):
                said = re.search(r"'arg_names': (\[.*?\])", ast.unparse(line))
                is_on = re.search(r"(^|default=)True", ast.unparse(line.value) if line.value else "")
                own = line.target.id.replace("_", "-")
                yield from ast.literal_eval(said[1]) if said else [f"--no-{own}", f"--disable-{own}"] if is_on else [f"--{own}"]

    for name, exclude in re.findall(r"ArgumentGroupFactory\((\w+)(?:, exclude ?= ?(\[[^\]]*\]|\w+))?", parser):
        if exclude and not exclude.startswith("["):
            exclude = re.search(rf"{exclude} = (\[[^\]]*\])", parser)[1]
        left_out = {name.replace("_", "-") for name in ast.literal_eval(exclude or "[]")}
        names |= {own for own in of_class(name) if re.sub("^--(no-|disable-)?", "", own) not in left_out}
    return {name.removeprefix("--").replace("-", "_") for name in names if name.startswith("--")}


def main():
    folder = Path(sys.argv[1])
    archives = {path.name.split("-")[0]: path for path in sorted(folder.iterdir())}
    version = lambda package: archives[package].name.removesuffix(".tar.gz").split("-")[1]
    written = {}
    for project, (packages, classes, tables) in CLASSES.items():
        texts = [file for package in packages for file in sources(archives[package])]
        known = classes_of(texts)
        missing = [name for names in [classes, *tables.values()] for name in names if name not in known]
        assert not missing, f"{project}: no class {missing}"
        names = set().union(*(fields(known, name, frozenset()) for name in classes))
        for table, nested in tables.items():
            names |= {f"{table}.{name}" for one in nested for name in fields(known, one, frozenset())}
        if project == "accelerate":
            launch = next(text for path, text in texts if path.endswith("commands/launch.py"))
            of_fsdp = set(re.findall(r'"--(fsdp_\w+)"', launch))
            names |= {f"fsdp_config.{name}" for name in of_fsdp}
            of_zero = set(re.findall(r'"--((?:zero|offload|deepspeed|gradient)_?\w+)"', launch))
            names |= {f"deepspeed_config.{name}" for name in of_zero}
        if project == "deepspeed":
            constants = "\n".join(text for path, text in texts if path.endswith(("runtime/constants.py", "runtime/precision_config.py")))
            names |= set(re.findall(r'^[A-Z0-9_]+ = ["\x27](\w+)["\x27]$', constants, re.MULTILINE)) | {"zero_optimization"}
        written[project] = {"of": {package: version(package) for package in packages}, "names": sorted(names)}
    recipes = [text for path, text in sources(archives["torchtune"]) if path.startswith("recipes/configs/")]
    names = {name for text in recipes for name in names_of_yaml(text)}
    # what a recipe reads though none of its files says it
    code = [text for path, text in sources(archives["torchtune"]) if path.startswith("recipes/") and path.endswith(".py")]
    names |= {name for text in code for name in re.findall(r'cfg\.get\(\s*"(\w+)"', text)}
    written["torchtune"] = {"of": {"torchtune": version("torchtune")}, "names": sorted(names)}
    written["torchtitan"] = {"of": {"torchtitan": version("torchtitan")}, "names": sorted(of_torchtitan(list(sources(archives["torchtitan"]))))}
    written["megatron"] = {"of": {"Megatron-LM": version("Megatron")}, "names": sorted(of_megatron(list(sources(archives["Megatron"]))))}
    json.dump(written, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
