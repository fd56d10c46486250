"""Records small models of Hugging Face's transformers with random weights, and their logits, as testdata/hugging_face.

    apt install python3-torch && python3 -m venv --system-site-packages venv && venv/bin/pip install transformers==4.40.2 safetensors
    venv/bin/python tests/keras/record_hugging_face.py

NAME/config.json, NAME/model.safetensors    as save_pretrained() writes them
NAME/logits.safetensors                     the input "x" (images channels last), "logits"
"""

import pathlib
import shutil

import numpy as np
import torch
import transformers

import fixture_files

FOLDER = pathlib.Path(__file__).parent / "testdata" / "hugging_face"


def resnet(kind, expansion, depths):
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(
        embedding_size=2, hidden_sizes=[2 * expansion * 2**i for i in range(4)], depths=depths, layer_type=kind, num_labels=5))


def models():
    tokens = torch.randint(0, 40, (3, 9))
    images = torch.randn(3, 3, 12, 12)
    yield "gpt2", tokens, transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=40, n_positions=12, n_embd=16, n_layer=2, n_head=4))
    yield "vit", images, transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, image_size=12, patch_size=4,
        num_labels=5))
    large = torch.randn(2, 3, 40, 40)
    yield "resnet18", large, resnet("basic", 1, [2, 2, 2, 2])
    yield "resnet50", large, resnet("bottleneck", 4, [3, 4, 6, 3])


def main():
    torch.manual_seed(1)
    for name, x, model in models():
        # What is initialised to zeros and ones would hide a weight in the wrong place.
        for key, value in model.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + 0.5 if "running_var" in key else torch.randn_like(value) * 0.2 + ("norm" in key))
        model.eval()
        with torch.no_grad():
            logits = model(x).logits
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder, safe_serialization=True)
        (folder / "generation_config.json").unlink(missing_ok=True)
        x = x.numpy().astype(np.int32) if x.dtype == torch.int64 else x.permute(0, 2, 3, 1).contiguous().numpy()
        fixture_files.write_tensors(folder / "logits.safetensors", {"x": x, "logits": logits.numpy()})
        print(name, sorted(path.name for path in folder.iterdir()))


if __name__ == "__main__":
    main()
