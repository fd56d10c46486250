# Training that is broken off goes on from its last checkpoint.
import tempfile
import tensorflow as tf


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.l1 = tf.keras.layers.Dense(5)

    def call(self, x):
        return self.l1(x)


def toy_dataset():
    inputs = tf.range(10.)[:, None]
    labels = inputs * 5. + tf.range(5.)[None, :]
    return tf.data.Dataset.from_tensor_slices(dict(x=inputs, y=labels)).repeat().batch(2)


def train_step(net, example, optimizer):
    with tf.GradientTape() as tape:
        output = net(example['x'])
        loss = tf.reduce_mean(tf.abs(output - example['y']))
    variables = net.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


def train_and_checkpoint(folder):
    opt, net = tf.keras.optimizers.Adam(0.1), Net()
    net(tf.zeros((1, 1)))
    iterator = iter(toy_dataset())
    ckpt = tf.train.Checkpoint(step=tf.Variable(1), optimizer=opt, net=net)
    manager = tf.train.CheckpointManager(ckpt, folder, max_to_keep=3)
    status = ckpt.restore(manager.latest_checkpoint)
    print("Restored from {}".format(manager.latest_checkpoint) if manager.latest_checkpoint else "Initializing from scratch.")
    for _ in range(20):
        loss = train_step(net, next(iterator), opt)
        ckpt.step.assign_add(1)
        if int(ckpt.step) % 10 == 0:
            print("Saved checkpoint for step {}: {}".format(int(ckpt.step), manager.save()))
    return int(ckpt.step), loss


with tempfile.TemporaryDirectory() as folder:
    step, first = train_and_checkpoint(folder)
    assert step == 21
    step, second = train_and_checkpoint(folder)
    assert step == 40, step  # it went on from step 20
assert float(second) < float(first)
