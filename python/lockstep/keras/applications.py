"""keras.applications: Keras' networks of images, the other networks of Lockstep's zoo, and published weights of Hugging Face's.

The networks are those of the zoo under Keras' names, with Keras' arguments; every one lies in a module with its preprocess_input, as in
Keras: ``from keras.applications.resnet50 import ResNet50, preprocess_input``.
"""

import os
import sys
import types

from .. import _lockstep, _names
from . import _imagenet
from .layers import wrapped
from .activations import serialize as _serialize


def from_hugging_face(folder):
    """The model of a folder with config.json and model.safetensors, weights and all: GPT-2, ViT, ResNet."""
    return wrapped(_lockstep.Model.from_hugging_face(os.fspath(folder)))


# --- the zoo, by its own names ------------------------------------------------------------------------------------------

def _network(name):
    defaults = _lockstep.application_options(name)

    def make(**options):
        return wrapped(_lockstep.Model.application(name, options))
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"The network {name}. Options: {', '.join(f'{key}={value!r}' for key, value in defaults.items())}."
    return make


for _name in _lockstep.application_names():
    globals()[_name] = _network(_name)


# --- Keras' names -------------------------------------------------------------------------------------------------------

_PUBLISHED = "https://storage.googleapis.com/tensorflow/keras-applications/"


class _Network:
    """A network that Keras has: what it is called there and in the zoo, and where its published weights are."""

    def __init__(self, name, zoo, modules, mode, weights, without_top="_notop", size=224, called=None, beside="", **options):
        self.name, self.zoo, self.modules, self.mode, self.size = name, zoo, modules, mode, size
        self.called, self.beside, self.options = called or zoo, beside, options
        self.files = [f"{weights}{ending}.h5" if weights.startswith("https:") else f"{_PUBLISHED}{weights}{ending}.h5" for ending in ("", without_top)]

    def make(self, include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, name):
        if weights == "imagenet":
            file = self.files[0 if include_top else 1]
            raise NotImplementedError(f"{self.name}: weights=\"imagenet\" is not fetched without being asked for; "
                                      f"weights=keras.utils.get_file(origin={file!r}, cache_subdir=\"models\") is Keras' file, weights=None begins anew{self.beside}")
        if weights is not None and not os.path.exists(weights):
            raise ValueError(f"{self.name}: weights is None or the path of a file, received {weights!r}, where there is none")
        if input_shape is None:
            side = self.size if include_top else None
            input_shape = (side, side, 3) if input_tensor is None else input_tensor.shape[1:]
        settings = {"input_shape": [-1 if part is None else int(part) for part in input_shape], "include_top": bool(include_top),
                    "pooling": pooling or "", "classes": int(classes), "name": name or self.called.format(*input_shape),
                    "classifier_activation": "linear" if classifier_activation is None else _serialize(classifier_activation), **self.options}
        made = wrapped(_lockstep.Model.application(self.zoo, settings))
        if input_tensor is not None:
            made = _beginning_with(made, input_tensor)
        if weights is not None:
            made.load_weights(weights)
        return made


def _beginning_with(network, tensor):
    """The layers of a network behind a value of a model, in one model with what that comes from."""
    from .models import Model, clone_model
    if not isinstance(tensor, _lockstep.KerasTensor):
        raise ValueError(f"input_tensor is a value of a model, such as an Input, received {tensor!r}")
    made = clone_model(network, input_tensors=tensor)
    sources = _sources(tensor)
    return made if sources == [tensor] else Model(sources[0] if len(sources) == 1 else sources, made.output, name=network.name)


def _sources(tensor):
    """The inputs that a value of a model comes from."""
    layer = getattr(tensor, "_layer", None)
    if layer is None:
        return [tensor]
    found = []
    for given in layer._symbolic[0]:
        found += [source for source in _sources(given) if source not in found]
    return found


_NETWORKS = (
    _Network("ResNet50", "resnet50", ("resnet50", "resnet"), "caffe", "resnet/resnet50_weights_tf_dim_ordering_tf_kernels", stem="imagenet"),
    *(_Network(f"ResNet{depth}", f"resnet{depth}", ("resnet",), "caffe", f"resnet/resnet{depth}_weights_tf_dim_ordering_tf_kernels",
               stem="imagenet") for depth in (101, 152)),
    *(_Network(f"ResNet{depth}V2", f"resnet{depth}_v2", ("resnet_v2",), "tf", f"resnet/resnet{depth}v2_weights_tf_dim_ordering_tf_kernels",
               called=f"resnet{depth}v2") for depth in (50, 101, 152)),
    _Network("VGG16", "vgg16", ("vgg16",), "caffe", "vgg16/vgg16_weights_tf_dim_ordering_tf_kernels"),
    _Network("VGG19", "vgg19", ("vgg19",), "caffe", "vgg19/vgg19_weights_tf_dim_ordering_tf_kernels"),
    _Network("DenseNet121", "densenet121", ("densenet",), "torch", "densenet/densenet121_weights_tf_dim_ordering_tf_kernels"),
    _Network("MobileNetV2", "mobilenet_v2", ("mobilenet_v2",), "tf", "mobilenet_v2/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224",
             "_no_top", called="mobilenetv2_1.00_{0}"),
    _Network("EfficientNetB0", "efficientnet_b0", ("efficientnet",), "none", "https://storage.googleapis.com/keras-applications/efficientnetb0",
             called="efficientnetb0",
             beside=". With weights=\"imagenet\" Keras divides normalized images by the square roots of (0.229, 0.224, 0.225) as well, which a path does "
                    "not make it do either"),
    _Network("InceptionV3", "inception_v3", ("inception_v3",), "tf", "inception_v3/inception_v3_weights_tf_dim_ordering_tf_kernels", size=299),
    _Network("Xception", "xception", ("xception",), "tf", "xception/xception_weights_tf_dim_ordering_tf_kernels", size=299),
)


class _Module(types.ModuleType):
    """A module of Keras'; where the zoo has a network of that name it is called as that."""

    _zoo = None

    def __call__(self, **options):
        if self._zoo is None:
            raise TypeError(f"{self.__name__} is a module")
        return self._zoo(**options)

    def __getattr__(self, name):
        raise _names.missing(self.__name__.partition(".")[2], name, vars(self))


def _of_keras(network):
    """The function that Keras has for a network."""
    if network.name == "MobileNetV2":
        def make(input_shape=None, alpha=1.0, include_top=True, weights="imagenet", input_tensor=None, pooling=None, classes=1000,
                 classifier_activation="softmax", name=None):
            if alpha != 1.0:
                raise NotImplementedError(f"MobileNetV2: the network of the published width, alpha=1.0, is there, received alpha={alpha}")
            return network.make(include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, name)
    else:
        def make(include_top=True, weights="imagenet", input_tensor=None, input_shape=None, pooling=None, classes=1000,
                 classifier_activation="softmax", name=None):
            return network.make(include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation, name)
    make.__name__ = make.__qualname__ = network.name
    make.__doc__ = f"Keras' {network.name}, with Keras' layers: weights is None, or the path of a file of weights, such as Keras' own."
    return make


def _put_into_modules(network):
    make = globals()[network.name] = _of_keras(network)
    for name in network.modules:
        module = sys.modules.get(f"{__name__}.{name}")
        if module is None:
            module = _Module(f"{__name__}.{name}", f"{network.name}, and what its images are prepared by.")
            module._zoo = globals().get(name)
            module.preprocess_input = _imagenet.preprocessing(network.mode)
            module.decode_predictions = _imagenet.decode_predictions
            globals()[name] = sys.modules[module.__name__] = module
        setattr(module, network.name, make)


for _each in _NETWORKS:
    _put_into_modules(_each)
imagenet_utils = sys.modules[f"{__name__}.imagenet_utils"] = _Module(f"{__name__}.imagenet_utils", "What networks of ImageNet have in common.")
imagenet_utils.preprocess_input, imagenet_utils.decode_predictions = _imagenet.preprocess_input, _imagenet.decode_predictions


def __getattr__(name):
    raise _names.missing("keras.applications", name, globals())
