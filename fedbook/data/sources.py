"""Where each dataset comes from: files, public addresses, published checksums, licence. Data, no code.

A file counts as right if its bytes have the checksum its publisher gives, or if what it unpacks to has the SHA-256
``content``: MNIST goes round packed by several gzips, and what ships here is one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedbook.data.characters import SPLITS, file_names

MNIST_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


@dataclass(frozen=True)
class DataFile:
    """One file of a dataset. ``path`` is relative to the data root; with a ``*``, all files that fit.

    ``published``: ``"md5:..."`` or ``"sha256:..."`` of the file's bytes, as published (``None``: nothing is published).
    ``size``: its bytes (``None``: not published). ``urls``: where to fetch it, tried in this order.
    ``content``, ``content_size``: SHA-256 and size of what a gzip file unpacks to.
    """

    path: str
    published: str | None = None
    size: int | None = None
    urls: tuple[str, ...] = ()
    content: str | None = None
    content_size: int = 0


@dataclass(frozen=True)
class Source:
    """A dataset and how to come by it.

    ``access``: ``"public"`` (fetched from ``urls``, or from the ``archive`` that holds all ``files``), ``"derived"``
    (made from another dataset), ``"bundled"`` (comes with a Python package or is computed), ``"manual"``
    (``instructions`` say what a person has to do: the publisher asks for an account or an agreement, or nobody
    publishes the file but the book).
    ``ignored``: what else lies in the archive and is not kept. ``part_limit``: the most bytes of one of its files.
    ``unpacked_in``: the folder, relative to the data root, that the archive's names start from.
    """

    name: str
    files: tuple[DataFile, ...]
    licence: str
    note: str
    access: str = "public"
    instructions: str = ""
    archive: DataFile | None = None
    ignored: tuple[str, ...] = ()
    part_limit: int = 2**25
    unpacked_in: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files' paths, relative to the data root."""
        return tuple(file.path for file in self.files)

    @property
    def remedy(self) -> str:
        """One sentence: what to do when the files are missing."""
        if self.access == "manual":
            return (
                f"It cannot be fetched for you. {self.instructions} Put the files below the data root as "
                f"{', '.join(self.paths)}; then verify them: fedbook data {self.name}"
            )
        return f"To fetch it: fedbook data {self.name}   (or: python -m fedbook data {self.name} --root DIR)"


def _packed(folder: str, bases: tuple[str, ...], rows: tuple[tuple[str, int, str, int], ...]) -> tuple[DataFile, ...]:
    """The four files of an idx dataset; a row is (published md5, size, content's sha256, content's size)."""
    return tuple(
        DataFile(f"{folder}/{name}", published, size, tuple(base + name for base in bases), content, content_size)
        for name, (published, size, content, content_size) in zip(MNIST_FILES, rows, strict=True)
    )


MNIST = Source(
    "mnist",
    _packed(
        "mnist",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        (
            (
                "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
                9_912_422,
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                47_040_016,
            ),
            (
                "md5:d53e105ee54ea40749a09fcbcd1e9432",
                28_881,
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                60_008,
            ),
            (
                "md5:9fb629c4189551a2d022fa330f9573f3",
                1_648_877,
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                7_840_016,
            ),
            (
                "md5:ec29112dd5afa0611ce80d1b7f02629c",
                4_542,
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                10_008,
            ),
        ),
    ),
    "Creative Commons Attribution-ShareAlike 3.0",
    "Handwritten digits of Y. LeCun, C. Cortes and C. J. C. Burges: 60,000 + 10,000 images of 28x28.",
)

FASHION_MNIST = Source(
    "fashion_mnist",
    _packed(
        "fashion-mnist",
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        (
            (
                "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                26_421_880,
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                47_040_016,
            ),
            (
                "md5:25c81989df183df01b3e8a0aad5dffbe",
                29_515,
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                60_008,
            ),
            (
                "md5:bef4ecab320f06d8554ea6380940ec79",
                4_422_102,
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                7_840_016,
            ),
            (
                "md5:bb300cfdad3c16e7a12a480ee83cd310",
                5_148,
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                10_008,
            ),
        ),
    ),
    "MIT, Zalando SE",
    "Articles of clothing of H. Xiao, K. Rasul and R. Vollgraf (2017): 60,000 + 10,000 images of 28x28.",
)

FASHION_MNIST_SUBSET = Source(
    "fashion_mnist_subset",
    _packed(
        "fashion-mnist/subset",
        (),
        (
            (
                "sha256:ee887745f865033cfb767ee6c316bda68f603522536dcfe21e3134ab506c639b",
                8_737_603,
                "1a5651bac1c8d13b3b54bc5c9e5d7dd0d5716c55bcacf608ec07e128ee20f6c1",
                15_680_016,
            ),
            (
                "sha256:49b3d3fecc6c58df84c7ee6b7003856f7f900aa1e0ffb7a8c87d63a1f64aed5f",
                10_087,
                "1638960929ac02c22c78a7d065f8e0c3d1df0ad754d241d51ea75bba6b633333",
                20_008,
            ),
            (
                "sha256:bc1b13f38debc99600a91ebef2576bc5d7c5647b005a16f6c862a7b6d10987ba",
                2_192_676,
                "659def869d901bb466a03b7bb490cc995e6af674fe1cbf5ab7a3ddc9ede495b6",
                3_920_016,
            ),
            (
                "sha256:6ad660075cc2bfeae40f8d748f1c7fb731ab6eff18466614aa0568df04bf2ba5",
                2_570,
                "9b73f926e0614aecd106892bbf5aebb3c5dd7f7399513a54a4674c8accb08e50",
                5_008,
            ),
        ),
    ),
    "MIT, Zalando SE",
    "20,000 + 5,000 images of Fashion-MNIST, 2,000 + 500 of each class, chosen by a keyed draw.",
    access="derived",
)

CIFAR10 = Source(
    "cifar10",
    tuple(
        DataFile(f"cifar-10-batches-py/{name}", f"md5:{md5}")
        for name, md5 in (
            ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
            ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
            ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
            ("data_batch_4", "634d18415352ddfa80567beed471001a"),
            ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
            ("test_batch", "40351d587109b95175f43aff81a1287e"),
            ("batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),
        )
    ),
    "none stated by the publisher; please cite A. Krizhevsky, Learning Multiple Layers of Features (2009)",
    "50,000 + 10,000 colour images of 32x32 in 10 classes, the publisher's python version.",
    archive=DataFile(
        "cifar-10-python.tar.gz",
        "md5:c58f30108f718f92721af3b95e74349a",
        170_498_071,
        ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
    ),
    ignored=("cifar-10-batches-py/readme.html",),
)

CIFAR100 = Source(
    "cifar100",
    tuple(
        DataFile(f"cifar-100-python/{name}", f"md5:{md5}")
        for name, md5 in (
            ("train", "16019d7e3df5f24257cddd939b257f8d"),
            ("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
            ("meta", "7973b15100ade9c7d40fb424638fde48"),
        )
    ),
    "none stated by the publisher; please cite A. Krizhevsky, Learning Multiple Layers of Features (2009)",
    "50,000 + 10,000 colour images of 32x32 in 100 classes and 20 superclasses, the publisher's python version.",
    archive=DataFile(
        "cifar-100-python.tar.gz",
        "md5:eb9058c3a382ffc7106e4002c42a8d85",
        169_001_437,
        ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
    ),
    ignored=("cifar-100-python/file.txt~",),
    part_limit=2**28,
)

# SHA-256 rather than the MD5 that other libraries name: the address is a plain http one.
SVHN = Source(
    "svhn",
    tuple(
        DataFile(f"svhn/{name}", f"sha256:{sha256}", size, (f"http://ufldl.stanford.edu/housenumbers/{name}",))
        for name, sha256, size in (
            ("train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8", 182_040_794),
            ("test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b", 64_275_384),
        )
    ),
    "non-commercial use only; please cite Y. Netzer et al., Reading Digits in Natural Images (2011)",
    "Digits of house numbers in photographs: 73,257 + 26,032 colour images of 32x32 in 10 classes of unequal size.",
)

DIGITS = Source(
    "digits",
    (),
    "CC BY 4.0 (UCI Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak)",
    "1,797 digits of 8x8; they come with scikit-learn, there is nothing to fetch.",
    access="bundled",
)

EMNIST = Source(
    "emnist",
    tuple(DataFile(f"emnist/gzip/{name}") for split in SPLITS for name in file_names(split)),
    "none stated by the publisher; please cite G. Cohen, S. Afshar, J. Tapson and A. van Schaik, EMNIST (2017)",
    "Handwritten letters and digits of 28x28 from NIST's Special Database 19, in six splits of 70,000 to 814,255.",
    archive=DataFile(
        "gzip.zip",
        "sha256:fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
        561_753_746,
        ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
    ),
    ignored=tuple(f"gzip/emnist-{split}-mapping.txt" for split in SPLITS),
    part_limit=2**28,
    unpacked_in="emnist",
)

FEMNIST = Source(
    "femnist",
    (DataFile("femnist/train/*.json"), DataFile("femnist/test/*.json")),
    "none stated for the images (NIST Special Database 19); LEAF's scripts: BSD 2-Clause",
    "EMNIST's characters by writer (LEAF, S. Caldas et al., 2018): 3,597 writers, about 818,000 images of 28x28.",
    access="manual",
    instructions=(
        "LEAF's script makes the files from NIST's originals: in a clone of https://github.com/TalwalkarLab/leaf, in "
        "data/femnist, run ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --smplseed 0 --spltseed 0, and take what is "
        "then in data/train and data/test."
    ),
)

# Address, checksum and licence as MedMNIST's own list gives them, the size as others' downloads showed it: not tried.
PATHMNIST = Source(
    "pathmnist",
    (
        DataFile(
            "pathmnist/pathmnist.npz",
            "md5:a8b06965200029087d5bd730944a56c1",
            205_615_438,
            (
                "https://zenodo.org/records/10519652/files/pathmnist.npz?download=1",
                "https://zenodo.org/records/6496656/files/pathmnist.npz?download=1",
            ),
        ),
    ),
    "CC BY 4.0; please cite J. Yang et al., MedMNIST v2 (2023), and J. N. Kather et al. (2019) for the images",
    "Stained tissue of the colon, 9 kinds: 89,996 + 10,004 + 7,180 colour images of 28x28 (MedMNIST v2).",
)

# By hand: what is fetched is listed file by file, and this archive has a file for each image.
TINY_IMAGENET = Source(
    "tiny_imagenet",
    tuple(
        DataFile(f"tiny-imagenet-200/{path}")
        for path in ("wnids.txt", "words.txt", "train/*/images/*.JPEG", "val/val_annotations.txt", "val/images/*.JPEG")
    ),
    "none stated by the publisher; the images are ImageNet's: research and education, no commerce",
    "200 classes of ImageNet, 100,000 + 10,000 colour images of 64x64 (Y. Le and X. Yang, 2015).",
    access="manual",
    instructions=(
        "Get http://cs231n.stanford.edu/tiny-imagenet-200.zip (248,100,043 bytes, md5 "
        "90528d7ca1a48142e341f4ef8d21d0de as others name them) and unpack it in the data root."
    ),
)

BREAST_CANCER = Source(
    "breast_cancer",
    (),
    "CC BY 4.0 (UCI Breast Cancer Wisconsin (Diagnostic), W. Wolberg, O. Mangasarian, N. Street and W. Street)",
    "569 tumours, 30 features each; they come with scikit-learn, there is nothing to fetch.",
    access="bundled",
)

_MADE_HERE = "it is made on your machine when it is loaded, there is nothing to fetch."
SOLIDS = Source(
    "solids",
    (),
    "that of the book",
    f"SYNTHETIC: simple solids from several sides, a stand-in for ModelNet10; {_MADE_HERE}",
    access="bundled",
)
TIME_SERIES = Source(
    "time_series",
    (),
    "that of the book",
    f"SYNTHETIC: made-up patients, a stand-in for MIMIC-III's in-hospital mortality; {_MADE_HERE}",
    access="bundled",
)

# The addresses are those that other projects name for the same pictures: not tried.
MODELNET10 = Source(
    "modelnet10",
    (DataFile("modelnet10/*/train/*.png"), DataFile("modelnet10/*/test/*.png")),
    "none stated for the views; the objects (Z. Wu et al., 3D ShapeNets, 2015) are for academic use",
    "CAD objects of ten kinds, twelve views each (H. Su et al., Multi-view Convolutional Neural Networks, 2015).",
    access="manual",
    instructions=(
        "The views of ModelNet40, of which ModelNet10 is a part, are at "
        "http://maxwell.cs.umass.edu/mvcnn-data/modelnet40v1png.tar; unpacked, they have a folder for each class, "
        "in it train and test, and in these the pictures, twelve an object: bathtub/train/bathtub_0001_001.png to "
        "bathtub_0001_012.png."
    ),
)

MIMIC3 = Source(
    "mimic3",
    (DataFile("mimic3/mimic3_ihm.npz"),),
    "PhysioNet Credentialed Health Data License: nobody may pass the data on",
    "In-hospital mortality from the first 48 hours in intensive care (MIMIC-III; benchmark of H. Harutyunyan et al., "
    "Multitask learning and benchmarking with clinical time series data, 2019).",
    access="manual",
    instructions=(
        "MIMIC-III 1.4 is at https://physionet.org/content/mimiciii/1.4/ for whoever has an account, a course and a "
        "signed agreement. Then, in a clone of https://github.com/YerevaNN/mimic3-benchmarks, follow its README up to "
        "the in-hospital mortality task and its split for validation, and run python -m fedbook.data.make mimic3 "
        "data/in-hospital-mortality OUT_DIR, which makes mimic3_ihm.npz."
    ),
)

IMAGENET100 = Source(
    "imagenet100",
    (DataFile("imagenet/train/*/*.JPEG"), DataFile("imagenet/val/*/*.JPEG")),
    "ImageNet's terms of access: research and education, no commerce",
    "A hundred classes of ILSVRC 2012 (O. Russakovsky et al., 2015), about 126,000 training images.",
    access="manual",
    instructions=(
        "ILSVRC 2012 is at https://image-net.org/download.php for whoever has an account. Unpack the training images "
        "to a folder for each class (n01440764 ...), and sort the validation images into folders of the same names."
    ),
)

_REMAKE = "It ships with the book: take it from the data/ of the book's repository."
WORDNET_MAMMALS = Source(
    "wordnet_mammals",
    (
        DataFile(
            "wordnet/mammals.txt.gz",
            "sha256:35a922f6608d236d67c1063a1322b538b5a5bf7a5fb3f1042f72a78d0a61f332",
            12_931,
            content="383c138dd4c3340a5a318dddada117c1573e4d6fe6018b7f4d4e4a687fc41551",
            content_size=38_062,
        ),
    ),
    "WordNet 3.0 license, Copyright 2006 by Princeton University",
    "The 1,182 mammals of WordNet 3.0 (G. A. Miller 1995) and what each directly is a kind or an instance of.",
    access="manual",
    instructions=f"{_REMAKE} From WordNet's data.noun: python -m fedbook.data.make wordnet_mammals SOURCE_DIR OUT_DIR.",
)

# Trained, so made only here: another machine's arithmetic gives other last digits.
WORDNET_EMBEDDING = Source(
    "wordnet_embedding",
    (
        DataFile(
            "wordnet/embedding.txt.gz",
            "sha256:ce677d8129d4d85ea229bda18f921d37acd6c6b238ff595244f77479c8853e79",
            23_247,
            content="c7e69a1acb4610310842dfbc4cd7c53611460cb2afd5bec545704460e9afbaa8",
            content_size=45_274,
        ),
    ),
    "WordNet 3.0 license, Copyright 2006 by Princeton University",
    "1,180 mammals of WordNet 3.0 as points of the hyperbolic plane, trained for the book.",
    access="manual",
    instructions=f"{_REMAKE} Another, as good: python -m fedbook.data.make wordnet_embedding OUT_DIR.",
)

SOURCES = {
    source.name: source
    for source in (
        *(DIGITS, MNIST, FASHION_MNIST, FASHION_MNIST_SUBSET),
        *(CIFAR10, CIFAR100, SVHN, EMNIST, FEMNIST, PATHMNIST, TINY_IMAGENET),
        *(BREAST_CANCER, SOLIDS, TIME_SERIES, MODELNET10, MIMIC3, IMAGENET100),
        *(WORDNET_MAMMALS, WORDNET_EMBEDDING),
    )
}
