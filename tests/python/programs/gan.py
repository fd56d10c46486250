# A generator and a discriminator, each with its optimizer, in one compiled step.
import tensorflow as tf
from tensorflow.keras import layers

BATCH, NOISE = 32, 4


def make_generator_model():
    model = tf.keras.Sequential()
    model.add(layers.Dense(16, use_bias=False, input_shape=(NOISE,)))
    model.add(layers.BatchNormalization())
    model.add(layers.LeakyReLU())
    model.add(layers.Dense(2))
    return model


def make_discriminator_model():
    model = tf.keras.Sequential()
    model.add(layers.Dense(16, input_shape=(2,)))
    model.add(layers.LeakyReLU())
    model.add(layers.Dropout(0.3))
    model.add(layers.Dense(1))
    return model


generator, discriminator = make_generator_model(), make_discriminator_model()
cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
generator_optimizer, discriminator_optimizer = tf.keras.optimizers.Adam(1e-3), tf.keras.optimizers.Adam(1e-3)


def discriminator_loss(real_output, fake_output):
    return (cross_entropy(tf.ones_like(real_output), real_output) + cross_entropy(tf.zeros_like(fake_output), fake_output))


@tf.function
def train_step(points):
    noise = tf.random.normal([BATCH, NOISE])
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        generated = generator(noise, training=True)
        real_output = discriminator(points, training=True)
        fake_output = discriminator(generated, training=True)
        gen_loss = cross_entropy(tf.ones_like(fake_output), fake_output)
        disc_loss = discriminator_loss(real_output, fake_output)
    gen_gradients = gen_tape.gradient(gen_loss, generator.trainable_variables)
    disc_gradients = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
    generator_optimizer.apply_gradients(zip(gen_gradients, generator.trainable_variables))
    discriminator_optimizer.apply_gradients(zip(disc_gradients, discriminator.trainable_variables))
    return gen_loss, disc_loss


data = tf.data.Dataset.from_tensor_slices(tf.random.normal((512, 2)) + 3.0).shuffle(512).batch(BATCH)
for epoch in range(3):
    for batch in data:
        gen_loss, disc_loss = train_step(batch)
    print(epoch, float(gen_loss), float(disc_loss))
assert tf.math.is_finite(gen_loss) and tf.math.is_finite(disc_loss)
