"""Keras on several hosts, each of which has its TF_CONFIG."""

import json
import os

import tensorflow as tf

workers = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.NCCL
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")

batch = 64 * strategy.num_replicas_in_sync
dataset = tf.keras.utils.image_dataset_from_directory("train", batch_size=batch).prefetch(tf.data.AUTOTUNE)
with strategy.scope():
    model = tf.keras.applications.ResNet50(weights=None, classes=1000)
    model.compile(
        optimizer=tf.keras.optimizers.SGD(0.1 * len(workers), momentum=0.9),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(),
    )
model.fit(dataset, epochs=90)
