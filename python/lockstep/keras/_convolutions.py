"""Convolutions whose product a class of Python's own may change."""

from ._layer import Layer


class OfConv(Layer):
    """A convolution of the engine's. A class that is derived from it and defines convolution_op() is computed by that."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "convolution_op" in vars(cls) and "call" not in vars(cls):
            cls.call = _call

    def convolution_op(self, inputs, kernel):
        """The inputs with these filters, as the layer's settings say; without the bias."""
        from . import ops
        if self.padding == "causal":
            before = self.dilation_rate[0] * (kernel.shape[0] - 1)
            inputs, padding = ops.pad(inputs, ((0, 0), (before, 0), (0, 0))), "valid"
        else:
            padding = self.padding
        return ops.conv(inputs, kernel, strides=list(self.strides), padding=padding, dilation_rate=self.dilation_rate,
                        data_format=self.data_format)


def _call(self, inputs):
    from . import ops
    made = self.convolution_op(inputs, self.kernel)
    if self.use_bias:
        shape = (1, -1) + (1,) * (len(made.shape) - 2) if self.data_format == "channels_first" else (-1,)
        made = made + ops.reshape(self.bias, shape)
    return made if self.activation is None else self.activation(made)
