# Schedules, optimizers with clipping and decay, accumulated gradients.
import numpy as np
import tensorflow as tf

x = np.random.default_rng(0).normal(size=(256, 4)).astype('float32')
y = x @ np.array([[1.], [2.], [3.], [4.]], 'float32')
schedules = tf.keras.optimizers.schedules
for optimizer in (tf.keras.optimizers.SGD(schedules.InverseTimeDecay(0.1, decay_steps=10, decay_rate=0.5), momentum=0.9, nesterov=True),
                  tf.keras.optimizers.Adam(schedules.CosineDecay(0.1, 100), clipnorm=1.0),
                  tf.keras.optimizers.AdamW(learning_rate=0.1, weight_decay=1e-4),
                  tf.keras.optimizers.RMSprop(0.05), tf.keras.optimizers.Adagrad(learning_rate=0.5),
                  tf.keras.optimizers.Nadam(0.1), tf.keras.optimizers.Lion(0.05)):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(optimizer=optimizer, loss='mse')
    history = model.fit(x, y, epochs=15, batch_size=32, verbose=0)
    print(optimizer.name, history.history['loss'][-1])
    assert history.history['loss'][-1] < history.history['loss'][0] / 3, optimizer.name
assert int(optimizer.iterations) == 15 * 8
