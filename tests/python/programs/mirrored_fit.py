# fit under MirroredStrategy, with a checkpoint, a schedule by epochs and a callback that prints.
import os
import tempfile
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
print('Number of devices: {}'.format(strategy.num_replicas_in_sync))
(x, y), _ = tf.keras.datasets.digits(train_size=1024, test_size=0)
BATCH_SIZE = 16 * strategy.num_replicas_in_sync


def scale(image, label):
    return tf.cast(image, tf.float32) / 255, label


train = tf.data.Dataset.from_tensor_slices((x, y)).map(scale).cache().shuffle(1024).batch(BATCH_SIZE)
with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Flatten(input_shape=(28, 28)),
        tf.keras.layers.Dense(32, activation='relu'),
        tf.keras.layers.Dense(10)
    ])
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  optimizer=tf.keras.optimizers.Adam(learning_rate=0.001), metrics=['accuracy'])


class PrintLR(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print('\nLearning rate for epoch {} is {}'.format(epoch + 1, self.model.optimizer.learning_rate.numpy()))


def decay(epoch):
    return 1e-2 if epoch < 2 else 1e-3


with tempfile.TemporaryDirectory() as folder:
    callbacks = [tf.keras.callbacks.ModelCheckpoint(os.path.join(folder, 'w{epoch}.safetensors'), save_weights_only=True),
                 tf.keras.callbacks.LearningRateScheduler(decay), PrintLR()]
    history = model.fit(train, epochs=3, callbacks=callbacks, verbose=0)
    assert sorted(os.listdir(folder)) == ['w1.safetensors', 'w2.safetensors', 'w3.safetensors'], os.listdir(folder)
assert history.history['accuracy'][-1] > 0.6, history.history
assert strategy.num_replicas_in_sync == 4
