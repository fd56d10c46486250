# An eager loop with clipped gradients, weights of examples, and a learning rate that is changed by hand.
import numpy as np
import tensorflow as tf

tf.random.set_seed(4)
model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation=tf.nn.tanh), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.Adam(0.05)
x = tf.random.uniform((64, 3), -1, 1)
y = tf.reduce_sum(x ** 2, axis=1, keepdims=True)
weights = tf.where(y[:, 0] > 1, 2.0, 1.0)
loss_fn = tf.keras.losses.MeanSquaredError()
first = None
for step in range(60):
    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True), sample_weight=weights)
    grads = tape.gradient(loss, model.trainable_weights)
    grads, norm = tf.clip_by_global_norm(grads, 1.0)
    optimizer.apply_gradients(zip(grads, model.trainable_weights))
    if step == 30:
        optimizer.learning_rate.assign(0.01)
    first = float(loss) if first is None else first
print(first, float(loss), float(norm))
assert float(loss) < first / 4
np.testing.assert_allclose(optimizer.learning_rate.numpy(), 0.01, rtol=1e-6)
