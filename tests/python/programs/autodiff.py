# Gradients: of scalars, of layers, of what is not differentiable.
import numpy as np
import tensorflow as tf

x = tf.Variable(3.0)
with tf.GradientTape() as tape:
    y = x ** 2
dy_dx = tape.gradient(y, x)
assert dy_dx.numpy() == 6

w = tf.Variable(tf.random.normal((3, 2)), name='w')
b = tf.Variable(tf.zeros(2, dtype=tf.float32), name='b')
x = [[1., 2., 3.]]
with tf.GradientTape(persistent=True) as tape:
    y = x @ w + b
    loss = tf.reduce_mean(y ** 2)
grad = tape.gradient(loss, {'w': w, 'b': b})
assert grad['w'].shape == w.shape and grad['b'].shape == b.shape

layer = tf.keras.layers.Dense(2, activation='relu')
x = tf.constant([[1., 2., 3.]])
with tf.GradientTape() as tape:
    y = layer(x)
    loss = tf.reduce_mean(y ** 2)
for var, g in zip(layer.trainable_variables, tape.gradient(loss, layer.trainable_variables)):
    print(f'{var.name}, shape: {g.shape}')

x0, x1 = tf.Variable(0.0), tf.Variable(10.0)
with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(x1)
    y = tf.reduce_sum(tf.math.sin(x0) + tf.nn.softplus(x1))
grad = tape.gradient(y, {'x0': x0, 'x1': x1})
assert grad['x0'] is None and abs(grad['x1'].numpy() - 0.9999546) < 1e-5

x = tf.constant([1.0, 2.0])
with tf.GradientTape() as tape:
    tape.watch(x)
    y = tf.cast(tf.argmax(x), tf.float32) + tf.reduce_sum(tf.stop_gradient(x) * x)
np.testing.assert_array_equal(tape.gradient(y, x), [1, 2])
