"""An image classifier on two nodes."""

import lightning as L  # as its documentation writes it
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.models import resnet50


class Classifier(L.LightningModule):
    def __init__(self, lr: float = 0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = resnet50(num_classes=1000)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)


def main() -> None:
    loader = DataLoader(ImageFolder("imagenet/train"), batch_size=128, num_workers=8, pin_memory=True)
    trainer = L.Trainer(
        accelerator="gpu",
        devices=8,
        num_nodes=2,
        strategy="ddp",
        precision="16-mixed",
        max_epochs=90,
        sync_batchnorm=True,
        gradient_clip_val=1.0,
        callbacks=[ModelCheckpoint(every_n_epochs=5)],
    )
    trainer.fit(Classifier(), loader)


if __name__ == "__main__":
    main()
