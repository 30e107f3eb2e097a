# The recipe for Spack: copy it to packages/py_ringreel/package.py of a repository of recipes.
# packaging/README.md lists the values that a release must enter.

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyRingreel(PythonPackage):
    """A ring of record segments on a shared filesystem, between many sample generators and a training job."""

    homepage = "https://github.com/ringreel/ringreel"
    pypi = "ringreel/ringreel-0.1.0.tar.gz"
    git = "https://github.com/ringreel/ringreel.git"

    license("MIT", checked_by="ringreel")

    version("main", branch="main")
    # The checksum is that of the source package; scripts/dist.sh prints it.
    version("0.1.0", sha256="0" * 64)

    variant("torch", default=False, description="Datasets and collation for PyTorch")
    variant("images", default=False, description="Reading of images in RecordIO files")

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-maturin@1.13.3:1", type="build")
    depends_on("py-numpy@1.23:", type=("build", "run"))
    depends_on("py-torch@1.13:", type=("build", "run"), when="+torch")
    depends_on("py-pillow@9:", type=("build", "run"), when="+images")

    # The other modules need packages of a variant.
    import_modules = ["ringreel", "ringreel.recordio", "ringreel.wirehead"]

    @property
    def build_directory(self):
        """In the repository, the Python package has a separate folder; in the source package it is the root."""
        root = self.stage.source_path
        return join_path(root, "python") if self.spec.satisfies("@main") else root

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_command(self):
        Executable(join_path(self.prefix.bin, "ringreel"))("--version")
