"""What is said of a name of TensorFlow's that does not exist here."""

import types

_DTYPES = "there are float16, bfloat16, float32, float64, int32, int64, uint8 and bool"
_SPARSE = "there are no sparse tensors"
_RAGGED = "there are no ragged tensors: rows have one length, padded_batch fills them up"
_COMPLEX = "there are no complex tensors"
_WAVES = f"{_COMPLEX}: keras.ops.fft, rfft, irfft, fft2, stft and istft take and give pairs, the real and the imaginary part"
_SESSIONS = "there are no graphs with sessions"
_SAVED = "there is no SavedModel: model.save(path.keras) keeps a model, model.export(path, format=\"onnx\") writes ONNX"
_PARAMETER_SERVERS = "there are no parameter servers: MultiWorkerMirroredStrategy trains on several machines"
_TF_CONFIG = "workers find each other by TF_CONFIG (TFConfigClusterResolver), by Slurm's variables or by lockstep run"
_DECODED = "JPEG and PNG are decoded: decode_image, decode_jpeg, decode_png"
_QUANTIZED = "there are no quantized tensors: layers compute in float16 or bfloat16 by keras.mixed_precision"
_EXTENSIONS = "there are no extension types: dictionaries, tuples and lists of tensors take their place"
_OPERATORS = "there are no linear operators: functions of tf.linalg take matrices"
_ENGINE = "ops are compiled by Lockstep's own engine: @tf.function, function.explain(*args) lists what runs"
_BESSEL = "there are no ops for it: tf.math.lgamma, digamma, erf, erfinv and keras.ops.i0 are there"
# Names that people try, and what to use in their place.
_INSTEAD = {name: words for names, words in {
    "placeholder": f"{_SESSIONS}: write a function of tensors, @tf.function compiles it",
    "Session InteractiveSession global_variables_initializer get_default_graph": f"{_SESSIONS}: values are computed at once, @tf.function compiles",
    "ConfigProto GPUOptions": f"{_SESSIONS}: tf.config has their settings, tf.config.experimental.set_memory_growth(gpu, True) for one",
    "Graph Operation import_graph_def graph_util write_graph init_scope variable_creator_scope":
        f"{_SESSIONS}: @tf.function compiles a function, and variables are made before it is called",
    "get_variable variable_scope": "variables are tf.Variable, and those of layers",
    "disable_v2_behavior disable_eager_execution": f"{_SESSIONS}: values are computed at once, @tf.function compiles",
    "v2": "the names of TensorFlow 2 are those of tf itself",
    "contrib": "there is no TensorFlow 1",
    "estimator": "there are no estimators: tf.keras takes their place",
    "feature_column": "there are no feature columns: layers of tf.keras.layers (Normalization, CategoryEncoding) prepare data",
    "lite": "models are not exported to TensorFlow Lite",
    "saved_model TFSMLayer ExportArchive": _SAVED,
    "tpu TPUClusterResolver": "there are no TPUs here",
    "sparse SparseTensor SparseTensorSpec sets to_dense edit_distance dense_to_sparse_batch deserialize_many_sparse serialize_many_sparse serialize_sparse": _SPARSE,
    "embedding_lookup_sparse safe_embedding_lookup_sparse": f"{_SPARSE}: embedding_lookup(params, ids) gives rows, which a mask weighs",
    "ctc_greedy_decoder ctc_beam_search_decoder": f"{_SPARSE}: keras.ops.ctc_decode(inputs, lengths, strategy) gives rows that -1 fills up",
    "ctc_unique_labels": "ctc_loss needs no unique labels",
    "ragged RaggedTensor RaggedTensorSpec dense_to_ragged_batch ragged_batch ragged_fill_empty_rows stack_dynamic_partitions": _RAGGED,
    "complex64 complex128 complex real imag conj angle eig eigvals polar view_as_complex view_as_real": _COMPLEX,
    "fft ifft fft2d ifft2d fft3d ifft3d fftnd ifftnd rfft irfft rfft2d irfft2d rfft3d irfft3d rfftnd irfftnd stft inverse_stft inverse_stft_window_fn": _WAVES,
    "mdct inverse_mdct": "there are tf.signal.frame, windows and tf.signal.dct(type=4), which it is made of",
    "int8 int16 uint16 uint32 uint64": f"{_DTYPES}: cast to int32 or int64",
    "qint8 qint16 qint32 quint8 quint16 quantization quantizers Quantizer": _QUANTIZED,
    "profiler": "fit(), strategies and scripts end with a report of where the time went; tf.report() is that of a custom loop",
    "ImageDataGenerator": "keras.utils.image_dataset_from_directory reads folders; the layers RandomFlip, RandomRotation, RandomZoom and Rescaling "
                          "change images",
    "DirectoryIterator NumpyArrayIterator": "keras.utils.image_dataset_from_directory and tf.data read images",
    "random_rotation random_shift random_shear random_zoom random_channel_shift apply_affine_transform":
        "the layers RandomRotation, RandomTranslation, RandomShear, RandomZoom and RandomColorJitter change images",
    "parse_sequence_example parse_single_sequence_example SequenceExample FeatureList FeatureLists":
        "tf.io.parse_single_example reads examples, which have no context",
    "trace_on trace_off trace_export": "functions explain themselves: function.explain(*args) lists what runs, function.report() where the time went",
    "py_func": "tf.py_function and tf.numpy_function",
    "decode_bmp decode_gif decode_webp decode_jxl": _DECODED,
    "Coordinator queue QueueRunner": "tf.data reads in threads of its own",
    "ClusterCoordinator coordinator Server ServerDef ClusterDef JobDef": _PARAMETER_SERVERS,
    "ClusterSpec ClusterResolver SimpleClusterResolver SlurmClusterResolver GCEClusterResolver KubernetesClusterResolver UnionResolver": _TF_CONFIG,
    "experimental_connect_to_cluster experimental_connect_to_host": _TF_CONFIG,
    "dtensor": "tf.distribute places tensors: one copy of a model on each device",
    "raw_ops": "ops are functions of tf, tf.math, tf.nn and keras.ops",
    "load_op_library load_library RegisterGradient no_gradient": "custom ops are Python functions: tf.custom_gradient defines their gradient",
    "xla mlir security autodiff tools sysconfig": _ENGINE,
    "TypeSpec ExtensionType BatchableExtensionType dispatch_for_api StructuredTensor RowPartition DynamicRaggedShape": _EXTENSIONS,
    "make_ndarray make_tensor_proto": "tensor.numpy() gives an array, tf.constant(array) a tensor",
    "igamma igammac betainc polygamma zeta bessel_i0 bessel_i0e bessel_i1 bessel_i1e special": _BESSEL,
    "poisson stateless_poisson stateless_binomial": "random numbers are uniform, normal, truncated normal, categorical and gamma; keras.random.binomial counts tries",
    "expm logm sqrtm matrix_square_root lu lu_solve lu_reconstruct lu_matrix_inverse tridiagonal_solve tridiagonal_matmul eigh_tridiagonal "
    "banded_triangular_solve": "tf.linalg has solve, inv, cholesky, qr, svd and eigh; keras.ops.lu_factor factors",
    "matching_files match_filenames_once": "tf.io.gfile.glob(pattern) lists files, tf.data.Dataset.list_files is a dataset of them",
    "fractional_avg_pool fractional_max_pool": "keras.ops.adaptive_average_pool and adaptive_max_pool make images of any size",
    "isotonic_regression": "there is no op for it",
    "to_code to_graph": "Python's control flow is not rewritten: tf.cond and tf.while_loop are part of compiled programs",
    "sample_distorted_bounding_box stateless_sample_distorted_bounding_box generate_bounding_box_proposals extract_glimpse":
        "parts of images are of a size that is known when a function is traced: random_crop, crop_and_resize and the layer RandomZoom",
    "ThresholdedReLU": "keras.layers.ReLU(threshold=theta) is the same",
    "RandomHeight RandomWidth RandomElasticTransform AugMix": "the layers RandomZoom, RandomShear, RandomPerspective and RandAugment change images",
    "SKLearnClassifier SKLearnRegressor SKLearnTransformer wrappers": "there are no wrappers for scikit-learn: fit, predict and evaluate take arrays",
    "visualization plot_image_gallery": "tf.image.draw_bounding_boxes draws boxes",
    "distribution DeviceMesh LayoutMap DataParallel ModelParallel": "tf.distribute has strategies for several devices and machines",
    "StatelessScope SymbolicScope": "there are no stateless calls: variables are changed where they are",
    "OrbaxCheckpoint": "keras.callbacks.ModelCheckpoint and tf.train.CheckpointManager keep checkpoints",
    "DatasetSpec IteratorSpec TensorArraySpec IndexedSlicesSpec NoneTensorSpec OptionalSpec type_spec_from_value":
        "tf.TensorSpec is the specification there is: of structures it is a structure of these",
    "RNNCellDeviceWrapper RNNCellDropoutWrapper RNNCellResidualWrapper": "cells of keras.layers take dropout and recurrent_dropout; a custom cell may do more",
    "fixed_unigram_candidate_sampler learned_unigram_candidate_sampler all_candidate_sampler": "log_uniform_candidate_sampler and uniform_candidate_sampler draw "
                                                                                               "classes",
    "compute_accidental_hits": "sampled_softmax_loss(remove_accidental_hits=True) leaves them out",
    "conv2d_backprop_filter_v2 conv2d_backprop_input_v2 depthwise_conv2d_backprop_filter depthwise_conv2d_backprop_input":
        "tf.GradientTape has the gradients of convolutions; tf.nn.conv2d_transpose is one of them",
    "batch_norm_with_global_normalization": "tf.nn.batch_normalization is the same",
    "approx_max_k approx_min_k approx_top_k": "tf.math.top_k finds the largest ones",
    "non_max_suppression_padded": "tf.image.combined_non_max_suppression fills up what it gives",
    "decode_proto encode_proto decode_json_example": "tf.io.parse_single_example reads examples; other messages are those of the package protobuf",
    "distributed_save": "dataset.snapshot(path) and dataset.cache(file) keep what a pipeline makes",
    "make_batched_features_dataset parse_example_dataset": "TFRecordDataset(files).batch(n).map(lambda x: tf.io.parse_example(x, features)) reads examples",
    "index_table_from_dataset table_from_dataset": "tf.lookup.StaticVocabularyTable and keras.layers.StringLookup map strings to ids",
    "service DatasetInitializer SqlDataset copy_to_device group_by_reducer pad_to_cardinality rejection_resample":
        "datasets have map, filter, group_by_window and from_generator, which makes any other",
    "float8_e4m3fn float8_e5m2 float4_e2m1fn int2 int4 uint2 uint4": _DTYPES,
    "DTypePolicyMap QuantizedDTypePolicy QuantizedFloat8DTypePolicy Int4DTypePolicy GPTQDTypePolicy AWQDTypePolicy": _QUANTIZED,
    "PreemptionCheckpointHandler PreemptionWatcher TerminationConfig": "keras.callbacks.BackupAndRestore and tf.train.CheckpointManager go on where a run ended",
    "DeviceSpec": "devices are names: tf.device(\"/GPU:0\")",
    "AggregationMethod": "gradients that meet are added",
    "hessians": "a tape in a tape differentiates twice: the outer one by jacobian()",
    "create_rng_state": "tf.random.Generator.from_seed(seed) is a generator",
    "to_hash_bucket": "tf.strings.to_hash_bucket_fast and to_hash_bucket_strong map strings to ids",
    "TorchModuleWrapper JaxLayer FlaxLayer": "layers are Lockstep's own; tensors of other libraries are taken by DLPack",
}.items() for name in names.split()}
_INSTEAD.update((f"LinearOperator{kind}", _OPERATORS) for kind in (
    "", "Adjoint", "BlockDiag", "BlockLowerTriangular", "Circulant", "Circulant2D", "Circulant3D", "Composition", "Diag", "FullMatrix", "Householder",
    "Identity", "Inversion", "Kronecker", "LowRankUpdate", "LowerTriangular", "Permutation", "ScaledIdentity", "Toeplitz", "Tridiag", "Zeros"))


def missing(module, name, there):
    """The exception for a name that a module does not have."""
    if name.startswith("__"):
        return AttributeError(name)
    text = f"module {module!r} has no attribute {name!r}"
    if name in _INSTEAD:
        return AttributeError(f"{text} in Lockstep: {_INSTEAD[name]}")
    ours = [key for key, value in there.items() if not key.startswith("_") and not _is_foreign(value)]
    import difflib  # which programs without mistakes do not need
    near = difflib.get_close_matches(name, ours, 1)
    return AttributeError(f"{text} in Lockstep" + (f"; did you mean {near[0]!r}?" if near else ""))


def _is_foreign(value):
    """Whether a value among a module's names is a module of another package, which it imports for itself."""
    return isinstance(value, types.ModuleType) and not value.__name__.startswith("lockstep")


def explain(module):
    """Makes a module say what there is in place of a name that it does not have."""
    name = module.__name__.partition(".")[2]
    name = name if name.startswith("keras") else "tensorflow." + name

    def of_module(missing_name):
        raise missing(name, missing_name, vars(module))
    module.__getattr__ = of_module


class Namespace(type):
    """Of classes that stand for modules: they say the same."""

    def __getattr__(cls, name):
        module = cls.__module__.partition(".")[2]
        error = missing(".".join(part for part in ("tensorflow", module, cls.__qualname__) if part), name, vars(cls))
        instead = vars(cls).get("_instead")
        raise AttributeError(f"{error}; {instead}") if instead and not name.startswith("__") else error
