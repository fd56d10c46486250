# The program of one of several workers; alone it says so and trains on its own devices.
import json
import os
import numpy as np
import tensorflow as tf

os.environ.pop('TF_CONFIG', None)
strategy = tf.distribute.MultiWorkerMirroredStrategy()


def dataset_fn(input_context):
    batch = input_context.get_per_replica_batch_size(32)
    x = np.random.default_rng(0).normal(size=(256, 4)).astype('float32')
    dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
    return dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id).batch(batch)


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    optimizer = tf.keras.optimizers.SGD(0.1)
dataset = strategy.distribute_datasets_from_function(dataset_fn)


@tf.function
def train_step(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        loss = tf.nn.compute_average_loss(tf.reduce_sum(tf.square(model(x) - y), axis=-1))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for epoch in range(4):
    for batch in dataset:
        loss = strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(batch,)), axis=None)
    print(epoch, float(loss))
assert float(loss) < 0.05
print(json.dumps({'workers': 1, 'replicas': strategy.num_replicas_in_sync}))
