# Pipelines: from arrays, generators and functions of Python.
import numpy as np
import tensorflow as tf

dataset = tf.data.Dataset.from_tensor_slices([8, 3, 0, 8, 2, 1])
assert [elem.numpy() for elem in dataset] == [8, 3, 0, 8, 2, 1]
assert dataset.reduce(0, lambda state, value: state + value).numpy() == 22


def count(stop):
    i = 0
    while i < stop:
        yield i
        i += 1


ds_counter = tf.data.Dataset.from_generator(count, args=[25], output_types=tf.int32, output_shapes=())
assert [batch.numpy().tolist() for batch in ds_counter.repeat().batch(10).take(2)] == [list(range(10)), list(range(10, 20))]


def gen_series():
    for i in range(4):
        yield i, np.random.normal(size=(i + 1,))


ds_series = tf.data.Dataset.from_generator(gen_series, output_types=(tf.int32, tf.float32), output_shapes=((), (None,)))
ids, sequence = next(iter(ds_series.padded_batch(4)))
assert sequence.shape == (4, 4), sequence.shape

numbers = tf.data.Dataset.range(10)
zipped = tf.data.Dataset.zip((numbers, numbers.map(lambda x: x * x)))
assert [(int(a), int(b)) for a, b in zipped.take(3)] == [(0, 0), (1, 1), (2, 4)]
assert [int(x) for x in numbers.filter(lambda x: x % 2 == 0).skip(1)] == [2, 4, 6, 8]
assert [int(x) for x in numbers.shard(3, 1)] == [1, 4, 7]
joined = numbers.interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(2), cycle_length=2, block_length=1)
assert len(list(joined)) == 20
shuffled = [int(x) for x in numbers.shuffle(10, seed=5)]
assert sorted(shuffled) == list(range(10))
assert [int(i) for i, _ in numbers.enumerate(start=5).take(2)] == [5, 6]
slow = numbers.map(lambda x: tf.py_function(lambda v: v + 1, [x], tf.int64), num_parallel_calls=4).prefetch(tf.data.AUTOTUNE)
assert [int(x) for x in slow] == list(range(1, 11))
print(dataset.element_spec, len(dataset))
