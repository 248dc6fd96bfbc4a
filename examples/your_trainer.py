"""Three hospitals train with the library they have: Lightning, Hugging Face, LoRA adapters, scikit-learn.

`python examples/your_trainer.py lightning` makes keys, starts a server and three hospitals as processes of this
machine, and averages after every epoch. `huggingface`, `lora` and `sklearn` do the same. What you need in your own
program is the function of your library below. The models are small and made here; nothing is downloaded.
"""

import sys
from functools import partial

import numpy as np
import torch
from three_hospitals import run_parties

import tacit

EPOCHS = 2


def train_with_lightning(roster: str, me: str, rounds: int) -> None:
    """Averages after every epoch, by a callback of PyTorch Lightning."""
    import lightning.pytorch as lightning

    from tacit.integrations.lightning import AverageCallback

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    x, y = make_samples(me)
    data = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
    model = Classifier()
    with tacit.join(roster, me=me) as peer:
        trainer = lightning.Trainer(
            max_epochs=rounds,
            callbacks=[AverageCallback(peer)],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=16, shuffle=True))
        report(me, peer.rounds, model.layer.weight)


def train_with_huggingface(roster: str, me: str, rounds: int, *, lora: bool = False) -> None:
    """Averages after every epoch, by a callback of Hugging Face's Trainer; with `lora` the adapters alone."""
    import transformers

    from tacit.integrations.transformers import AverageCallback

    torch.manual_seed(0)  # all hospitals begin with the same model
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=32, num_labels=2, **shape))
    if lora:
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"]))
    x, y = make_samples(me)
    tokens = torch.tensor(np.digitize(x, np.linspace(-2, 2, 31)))
    rows = [{"input_ids": row, "labels": int(label)} for row, label in zip(tokens, y, strict=True)]
    with tacit.join(roster, me=me) as peer:
        trainer = transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir="/tmp/unused",  # noqa: S108 (nothing is saved)
                num_train_epochs=rounds,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
            ),
            train_dataset=rows,
            callbacks=[AverageCallback(peer, only_trainable=lora)],
        )
        trainer.train()
        report(me, peer.rounds, next(value for value in model.parameters() if value.requires_grad))


def train_with_sklearn(roster: str, me: str, rounds: int) -> None:
    """Averages the coefficients of a linear estimator after every pass over the samples."""
    from sklearn.linear_model import SGDClassifier

    from tacit.integrations.scikit_learn import average_estimator

    x, y = make_samples(me)
    estimator = SGDClassifier(loss="log_loss", alpha=0.1)
    with tacit.join(roster, me=me) as peer:
        for _ in range(rounds):
            estimator.partial_fit(x, y, classes=[0, 1])
            average_estimator(peer, estimator)
        report(me, peer.rounds, estimator.coef_)


TRAINERS = {
    "lightning": train_with_lightning,
    "huggingface": train_with_huggingface,
    "lora": partial(train_with_huggingface, lora=True),
    "sklearn": train_with_sklearn,
}


def make_samples(me: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns samples of a hospital: four measurements each, and whether the first two add up to more than zero."""
    x = np.random.default_rng(sum(me.encode())).normal(size=(64, 4)).astype(np.float32)
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int64)


def report(me: str, rounds: int, weights: torch.Tensor | np.ndarray) -> None:
    """Prints a digest of the weights, which is the same at all hospitals."""
    numbers = np.asarray(weights.detach() if isinstance(weights, torch.Tensor) else weights)
    print(
        f"{me}: {rounds} rounds, weights {' '.join(f'{each:.4f}' for each in numbers.ravel()[-4:])}\n",
        end="",
        flush=True,
    )


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in TRAINERS:
        sys.exit(run_parties(TRAINERS[sys.argv[1]], EPOCHS))
    sys.exit(f"try: python examples/your_trainer.py {'|'.join(TRAINERS)}")
