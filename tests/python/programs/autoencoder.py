# A convolutional autoencoder that removes noise.
import tensorflow as tf
from tensorflow.keras import layers, losses
from tensorflow.keras.models import Model

(x_train, _), _ = tf.keras.datasets.digits(train_size=128, test_size=0)
x_train = x_train.astype('float32')[..., tf.newaxis] / 255.
x_noisy = tf.clip_by_value(x_train + 0.2 * tf.random.normal(shape=x_train.shape), clip_value_min=0., clip_value_max=1.)


class Denoise(Model):
    def __init__(self):
        super().__init__()
        self.encoder = tf.keras.Sequential([
            layers.Input(shape=(28, 28, 1)),
            layers.Conv2D(8, (3, 3), activation='relu', padding='same', strides=2),
            layers.Conv2D(4, (3, 3), activation='relu', padding='same', strides=2)])
        self.decoder = tf.keras.Sequential([
            layers.Conv2DTranspose(4, kernel_size=3, strides=2, activation='relu', padding='same'),
            layers.Conv2DTranspose(8, kernel_size=3, strides=2, activation='relu', padding='same'),
            layers.Conv2D(1, kernel_size=(3, 3), activation='sigmoid', padding='same')])

    def call(self, x):
        return self.decoder(self.encoder(x))


autoencoder = Denoise()
autoencoder.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss=losses.MeanSquaredError())
history = autoencoder.fit(x_noisy, x_train, epochs=3, batch_size=32, shuffle=True, verbose=0)
encoded = autoencoder.encoder(x_noisy[:2]).numpy()
assert encoded.shape == (2, 7, 7, 4)
assert autoencoder.decoder(encoded).numpy().shape == (2, 28, 28, 1)
assert history.history['loss'][-1] < history.history['loss'][0]
