"""The order of arguments in the signatures of Keras' classes, where files have settings in another one."""

_WEIGHTS = ("kernel_initializer bias_initializer kernel_regularizer bias_regularizer activity_regularizer kernel_constraint "
            "bias_constraint")
_CONVOLUTION = f"data_format dilation_rate groups activation use_bias {_WEIGHTS}"
_TRANSPOSED = f"activation use_bias {_WEIGHTS}"
_DEPTHWISE = ("kernel_size strides padding depth_multiplier data_format dilation_rate activation use_bias depthwise_initializer "
              "bias_initializer depthwise_regularizer bias_regularizer activity_regularizer depthwise_constraint bias_constraint")
_SEPARABLE = ("filters kernel_size strides padding data_format dilation_rate depth_multiplier activation use_bias depthwise_initializer "
              "pointwise_initializer bias_initializer depthwise_regularizer pointwise_regularizer bias_regularizer activity_regularizer "
              "depthwise_constraint pointwise_constraint bias_constraint")
_RECURRENT = ("kernel_regularizer recurrent_regularizer bias_regularizer activity_regularizer kernel_constraint recurrent_constraint "
              "bias_constraint dropout recurrent_dropout")
_BEGINNING = "activation recurrent_activation use_bias kernel_initializer recurrent_initializer bias_initializer"
_STATES = "return_sequences return_state go_backwards stateful"
_SCALED = "beta_initializer gamma_initializer"
_RULES = "beta_regularizer gamma_regularizer beta_constraint gamma_constraint"
_LORA = "lora_rank lora_alpha"
_PLACES = "fill_mode interpolation seed fill_value data_format"
_COUNTED = "name dtype ignore_class"

_SIGNATURES = {"layer": {
    "Dropout": "rate noise_shape seed", "AlphaDropout": "rate noise_shape seed", "SpatialDropout1D": "rate seed name dtype",
    "Normalization": "axis mean variance invert", "Bidirectional": "layer merge_mode weights backward_layer", "RNN": "cell",
    "CategoryEncoding": "num_tokens output_mode sparse",
    "Discretization": "bin_boundaries num_bins epsilon output_mode sparse dtype name",
    "IntegerLookup": "max_tokens num_oov_indices mask_token oov_token vocabulary vocabulary_dtype idf_weights invert output_mode sparse "
                     "pad_to_max_tokens oov_method salt name",
    "Dense": f"units activation use_bias {_WEIGHTS} {_LORA} quantization_config",
    "EinsumDense": "equation output_shape activation bias_axes kernel_initializer bias_initializer kernel_regularizer bias_regularizer "
                   f"kernel_constraint bias_constraint {_LORA} gptq_unpacked_column_size quantization_config",
    "Embedding": "input_dim output_dim embeddings_initializer embeddings_regularizer embeddings_constraint mask_zero weights "
                 f"{_LORA} quantization_config",
    "ReversibleEmbedding": "input_dim output_dim tie_weights embeddings_initializer embeddings_regularizer embeddings_constraint mask_zero "
                           "reverse_dtype logit_soft_cap",
    "BatchNormalization": f"axis momentum epsilon center scale {_SCALED} moving_mean_initializer moving_variance_initializer {_RULES} "
                          "renorm renorm_clipping renorm_momentum synchronized",
    "LayerNormalization": f"axis epsilon center scale {_SCALED} {_RULES}",
    "MultiHeadAttention": "num_heads key_dim value_dim dropout use_bias output_shape attention_axes sliding_window flash_attention "
                          f"{_WEIGHTS} use_gate seed",
    "GroupQueryAttention": "head_dim num_query_heads num_key_value_heads dropout use_bias sliding_window flash_attention "
                           f"{_WEIGHTS} use_gate seed",
    "LSTM": f"units {_BEGINNING} unit_forget_bias {_RECURRENT} seed {_STATES} unroll use_cudnn",
    "GRU": f"units {_BEGINNING} {_RECURRENT} seed {_STATES} unroll reset_after use_cudnn",
    "SimpleRNN": "units activation use_bias kernel_initializer recurrent_initializer bias_initializer "
                 f"{_RECURRENT} {_STATES} unroll seed",
    "Conv1DTranspose": f"filters kernel_size strides padding output_padding data_format dilation_rate {_TRANSPOSED}",
    "Conv2DTranspose": f"filters kernel_size strides padding output_padding data_format dilation_rate {_TRANSPOSED}",
    "Conv3DTranspose": f"filters kernel_size strides padding data_format output_padding dilation_rate {_TRANSPOSED}",
    "RandomRotation": f"factor {_PLACES}",
    **dict.fromkeys(("RandomTranslation", "RandomZoom"), f"height_factor width_factor {_PLACES}"),
    **dict.fromkeys(("SpatialDropout2D", "SpatialDropout3D"), "rate data_format seed name dtype"),
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), _DEPTHWISE),
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), _SEPARABLE),
    **{f"Conv{n}D": f"filters kernel_size strides padding {_CONVOLUTION}" for n in (1, 2, 3)},
    **{f"ConvLSTM{n}D": f"filters kernel_size strides padding data_format dilation_rate {_BEGINNING} unit_forget_bias {_RECURRENT} "
                        f"seed {_STATES}" for n in (1, 2, 3)},
    **{f"{kind}Pooling{n}D": "pool_size strides padding data_format name" for kind in ("Max", "Average") for n in (1, 2, 3)},
}, "loss": {
    "BinaryFocalCrossentropy": "apply_class_balancing alpha gamma from_logits label_smoothing axis",
    "CategoricalFocalCrossentropy": "alpha gamma from_logits label_smoothing axis",
    "Dice": "reduction name axis dtype", "Tversky": "alpha beta reduction name axis dtype",
    "SparseCategoricalCrossentropy": "from_logits ignore_class reduction axis name dtype",
}, "metric": {
    "AUC": "num_thresholds curve summation_method name dtype thresholds multi_label num_labels label_weights from_logits",
    "IoU": f"num_classes target_class_ids {_COUNTED} sparse_y_true sparse_y_pred axis",
    "MeanIoU": f"num_classes {_COUNTED} sparse_y_true sparse_y_pred axis",
    "OneHotIoU": f"num_classes target_class_ids {_COUNTED} sparse_y_pred axis",
    "OneHotMeanIoU": f"num_classes {_COUNTED} sparse_y_pred axis",
    "SparseTopKCategoricalAccuracy": "k name dtype from_sorted_ids",
    "SensitivityAtSpecificity": "specificity num_thresholds class_id name dtype",
    "SpecificityAtSensitivity": "sensitivity num_thresholds class_id name dtype",
    "PrecisionAtRecall": "recall num_thresholds class_id name dtype", "RecallAtPrecision": "precision num_thresholds class_id name dtype",
    **dict.fromkeys(("BinaryAccuracy", "BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy",
                     "CosineSimilarity", "PearsonCorrelation", "ConcordanceCorrelation"), "name dtype"),
}, "optimizer": {
    "AdamW": "learning_rate weight_decay beta_1 beta_2 epsilon amsgrad",
    "Muon": "learning_rate adam_beta_1 adam_beta_2 adam_weight_decay epsilon",
}}

# What every optimizer takes behind its own.
_OF_OPTIMIZERS = ("weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum", "ema_overwrite_frequency",
                  "loss_scale_factor", "gradient_accumulation_steps", "name")
_BEHIND = {"Muon": ("exclude_layers", "exclude_embeddings", "muon_a", "muon_b", "muon_c", "adam_lr_ratio", "momentum", "ns_steps",
                    "nesterov", "rms_rate")}


def ordered(kind, class_name, known):
    """The names of a constructor's arguments in the order of Keras' signature, those first that it begins with. Some of them the engine
    may not know: they keep their place, and are refused where somebody says them."""
    first = _SIGNATURES.get(kind, {}).get(class_name, "").split()
    rest = [name for name in known if name not in first]
    if kind == "optimizer" and "learning_rate" in known:
        behind = [name for name in (*_OF_OPTIMIZERS, *_BEHIND.get(class_name, ())) if name in rest]
        rest = [name for name in rest if name not in behind] + behind
    return first + rest
