"""The classes of the image sets in words: names where a set's files have none, and a sentence a class.

The sentences were written from the names alone, before anything was measured with them.
"""

from __future__ import annotations

# In the order of the numbers in imagelabels.mat; the set's files hold no names.
FLOWERS = (
    *("pink primrose", "hard-leaved pocket orchid", "canterbury bells", "sweet pea", "english marigold"),
    *("tiger lily", "moon orchid", "bird of paradise", "monkshood", "globe thistle", "snapdragon"),
    *("colt's foot", "king protea", "spear thistle", "yellow iris", "globe-flower", "purple coneflower"),
    *("peruvian lily", "balloon flower", "giant white arum lily", "fire lily", "pincushion flower"),
    *("fritillary", "red ginger", "grape hyacinth", "corn poppy", "prince of wales feathers"),
    *("stemless gentian", "artichoke", "sweet william", "carnation", "garden phlox", "love in the mist"),
    *("mexican aster", "alpine sea holly", "ruby-lipped cattleya", "cape flower", "great masterwort"),
    *("siam tulip", "lenten rose", "barbeton daisy", "daffodil", "sword lily", "poinsettia"),
    *("bolero deep blue", "wallflower", "marigold", "buttercup", "oxeye daisy", "common dandelion"),
    *("petunia", "wild pansy", "primula", "sunflower", "pelargonium", "bishop of llandaff", "gaura"),
    *("geranium", "orange dahlia", "pink-yellow dahlia", "cautleya spicata", "japanese anemone"),
    *("black-eyed susan", "silverbush", "californian poppy", "osteospermum", "spring crocus"),
    *("bearded iris", "windflower", "tree poppy", "gazania", "azalea", "water lily", "rose"),
    *("thorn apple", "morning glory", "passion flower", "lotus lotus", "toad lily", "anthurium"),
    *("frangipani", "clematis", "hibiscus", "columbine", "desert-rose", "tree mallow", "magnolia"),
    *("cyclamen", "watercress", "canna lily", "hippeastrum", "bee balm", "ball moss", "foxglove"),
    *("bougainvillea", "camellia", "mallow", "mexican petunia", "bromelia", "blanket flower"),
    *("trumpet creeper", "blackberry lily"),
)
SPECIES = {1: "cat", 2: "dog"}  # as the Pets annotations number them


def pet_sentence(name: str, species: int) -> str:
    """What a picture of a breed shows.

    Example:
        >>> pet_sentence("Maine Coon", 1)
        'a photo that shows a cat of the Maine Coon breed'
    """
    return f"a photo that shows a {SPECIES[species]} of the {name} breed"


def flower_sentence(name: str) -> str:
    """What a picture of a flower shows."""
    return f"a close photo of a flower, the {name}"


def bird_sentence(name: str) -> str:
    """What a picture of a bird shows."""
    return f"a photo of a bird in the wild, the {name}"
