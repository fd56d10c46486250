# Functions: what happens while they are traced, what happens in every call.
import tensorflow as tf


@tf.function
def add(a, b):
    return a + b


assert add(tf.ones([2, 2]), tf.ones([2, 2])).numpy().sum() == 8
v = tf.Variable(1.0)
with tf.GradientTape() as tape:
    result = add(v, 1.0)
assert tape.gradient(result, v).numpy() == 1

lines = []


@tf.function
def f(x):
    lines.append(f"Traced with {x!r}")
    tf.print("Executed with", x)
    return x


f(1)
f(1)
f(2)
assert len(lines) == 2, lines


@tf.function(input_signature=(tf.TensorSpec(shape=[None], dtype=tf.int32),))
def next_collatz(x):
    return tf.where(x % 2 == 0, x // 2, 3 * x + 1)


assert next_collatz(tf.constant([1, 2])).numpy().tolist() == [4, 1]
try:
    next_collatz(tf.constant([[1, 2], [3, 4]]))
except TypeError as error:
    print(error)
else:
    raise AssertionError("the signature was not looked at")


class Dense(tf.Module):
    def __init__(self, in_features, out_features, name=None):
        super().__init__(name=name)
        self.w = tf.Variable(tf.random.normal([in_features, out_features]), name='w')
        self.b = tf.Variable(tf.zeros([out_features]), name='b')

    @tf.function
    def __call__(self, x):
        return tf.nn.relu(x @ self.w + self.b)


dense = Dense(3, 2)
assert dense(tf.ones((4, 3))).shape == (4, 2)
assert [variable.name for variable in dense.trainable_variables] == ['w:0', 'b:0']
