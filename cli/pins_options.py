"""What the commands of `neuron-env pins` share: options that name a set, with completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_sdk(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from neuron_runtime.pins.catalog import load_catalog

    return [CompletionItem(r.sdk) for r in load_catalog().releases if r.sdk.startswith(incomplete)]


def complete_torch(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from neuron_runtime.pins.catalog import load_catalog
    from neuron_runtime.pins.versions import series

    found = dict.fromkeys(series(pins.build.torch) for pins in load_catalog().pin_sets())
    return [CompletionItem(torch) for torch in found if torch.startswith(incomplete)]


sdk_option = click.option(
    "--sdk", metavar="X.Y.Z", shell_complete=complete_sdk, help="The release.  [default: the newest]"
)
torch_option = click.option(
    "--torch", metavar="X.Y", shell_complete=complete_torch, help="The torch.  [default: the newest]"
)
