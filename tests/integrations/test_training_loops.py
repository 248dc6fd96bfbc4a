"""Callbacks and estimators: parties that train as people do, between real sockets, and end with one model."""

import copy

import numpy as np
import pytest

from support.federations import SOON, Made
from support.joined_peers import joined, serve, together
from tacit.core.errors import ConfigError
from tacit.integrations.training_loops import AveragingPlan, select_tensors

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.long,
    # Of the trainers and of what they import.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]
NAMES = "abc"


@pytest.fixture
def peers(tmp_path):
    with serve(Made.of(tmp_path, "secagg", list(NAMES), SOON, max_weight=400.0)) as path:
        found = joined(path, NAMES)
        yield found
        together(found, lambda peer: peer.leave())


class Recorder:
    """A peer alone, which gives back what it was given, and notes how often it was asked."""

    name = "a"

    def __init__(self, replaced=()):
        self.averages, self.restored, self.replaced = [], 0, replaced

    def average(self, model, weight=1.0):
        self.averages.append((weight, copy.deepcopy(model)))
        halves = {name: value / 2 for name, value in model.items()}
        return type("Ended", (), {"average": {"a": halves}, "replaced": self.replaced})()

    def restore(self, model):
        self.restored += 1
        return model


def samples(seed, count=48):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    return x, (x[:, 0] + x[:, 1] > 0).long()


def same_models(models):
    states = [select_tensors(model) for model in models]
    for name, value in states[0].items():
        assert all(torch.allclose(value, other[name], atol=1e-5) for other in states[1:]), name


def make_lightning(seed):
    lightning = pytest.importorskip("lightning.pytorch")
    torch.manual_seed(0)

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*samples(seed)), batch_size=16, shuffle=True)
    return Classifier(), loader


def fit_lightning(folder, callback, seed, epochs=2, **options):
    lightning = pytest.importorskip("lightning.pytorch")
    module, loader = make_lightning(seed)
    trainer = lightning.Trainer(
        max_epochs=epochs, callbacks=[callback], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", default_root_dir=folder, **options,
    )  # fmt: skip
    trainer.fit(module, loader)
    return module


def test_lightning_trainers_end_with_one_model(peers, tmp_path):
    from tacit.integrations.lightning import AverageCallback

    modules = together(
        range(3), lambda i: fit_lightning(tmp_path, AverageCallback(peers[i], weight=48.0, every_epochs=2), i)
    )
    same_models(modules)
    assert [peer.rounds for peer in peers] == [1, 1, 1]
    # A program that starts again goes on from the average, whatever its module was.
    fresh, _ = make_lightning(0)
    torch.nn.init.zeros_(fresh.layers[0].weight)
    AverageCallback(peers[0]).on_fit_start(None, fresh)
    same_models([fresh, modules[0]])


def test_lightning_averages_after_steps_and_counts_accumulated_batches_once(tmp_path):
    from tacit.integrations.lightning import AverageCallback

    peer = Recorder()
    fit_lightning(tmp_path, AverageCallback(peer, 3.0, every_steps=2), 0, epochs=4, accumulate_grad_batches=3)
    assert [weight for weight, _ in peer.averages] == [3.0, 3.0], "four epochs of one step each"
    assert "layers.1.num_batches_tracked" not in peer.averages[0][1]
    assert peer.restored == 1


def make_language_model():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=32,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            num_labels=2,
        )
    )


def make_trainer(folder, callback, model, seed):
    """Returns a trainer. Trainers share state of their library while they are made, so make them in one thread."""
    transformers = pytest.importorskip("transformers")
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 32, (24, 6), generator=generator)
    rows = [{"input_ids": row, "labels": int(row[0] > 15)} for row in tokens]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), num_train_epochs=2, per_device_train_batch_size=8, report_to=[], save_strategy="no",
        logging_strategy="no", use_cpu=True, disable_tqdm=True, learning_rate=1e-2, seed=seed,
    )  # fmt: skip
    return transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[callback])


def test_hugging_face_trainers_end_with_one_model(peers, tmp_path):
    pytest.importorskip("accelerate")
    from tacit.integrations.transformers import AverageCallback

    models = [make_language_model() for _ in peers]
    trainers = [make_trainer(tmp_path, AverageCallback(peers[i], 24.0), models[i], i) for i in range(3)]
    together(trainers, lambda trainer: trainer.train())
    same_models(models)
    assert [peer.rounds for peer in peers] == [2, 2, 2]


def test_only_the_weights_of_lora_adapters_are_averaged(peers, tmp_path):
    pytest.importorskip("accelerate")
    peft = pytest.importorskip("peft")
    from tacit.integrations.transformers import AverageCallback

    settings = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    torch.manual_seed(0)
    models = [peft.get_peft_model(make_language_model(), settings) for _ in peers]
    for model in models[1:]:  # every party begins with the same adapters
        model.load_state_dict(models[0].state_dict())
    before = copy.deepcopy(models[0].state_dict())
    averaged = select_tensors(models[0], only_trainable=True)
    assert all("lora_" in name or "classifier" in name for name in averaged)
    assert sum(value.numel() for value in averaged.values()) < sum(value.numel() for value in before.values()) / 4
    plan = {"every_epochs": 2, "only_trainable": True}
    trainers = [make_trainer(tmp_path, AverageCallback(peers[i], **plan), models[i], i) for i in range(3)]
    together(trainers, lambda trainer: trainer.train())
    same_models(models)
    after = models[0].state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == set(averaged)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_modules_keep_their_type(peers, dtype):
    modules = [torch.nn.Linear(4, 3).to(dtype) for _ in peers]
    mean = sum(module.weight.detach().double() for module in modules) / 3
    together(range(3), lambda i: AveragingPlan(peers[i]).average(modules[i]))
    assert all(module.weight.dtype == dtype for module in modules)
    assert torch.allclose(modules[0].weight.detach().double(), mean, atol=1e-2)
    assert len({module.weight.detach().double().numpy().tobytes() for module in modules}) == 1


def test_estimators_of_scikit_learn_end_with_one_model(peers):
    linear = pytest.importorskip("sklearn.linear_model")
    from tacit.integrations.scikit_learn import average_estimator, restore_estimator

    data = [[part.numpy() for part in samples(seed, 400)] for seed in range(4)]
    estimators = [linear.SGDClassifier(loss="log_loss", alpha=0.1, random_state=i) for i in range(3)]
    for _ in range(2):
        for estimator, (x, y) in zip(estimators, data, strict=False):
            estimator.partial_fit(x, y, classes=[0, 1])
        mean = sum(estimator.coef_ for estimator in estimators) / 3
        together(range(3), lambda i: average_estimator(peers[i], estimators[i], 400.0))
        assert all(np.allclose(estimator.coef_, mean, atol=1e-4) for estimator in estimators)
        assert len({estimator.intercept_.tobytes() for estimator in estimators}) == 1
    assert estimators[0].score(*data[3]) > 0.95
    fresh = linear.LogisticRegression().fit(*data[0])
    restore_estimator(peers[0], fresh)
    assert np.array_equal(fresh.coef_, estimators[0].coef_)


def test_estimators_without_coefficients_are_refused():
    linear = pytest.importorskip("sklearn.linear_model")
    from tacit.integrations.scikit_learn import average_estimator

    x, y = (part.numpy() for part in samples(0))
    with pytest.raises(ConfigError, match="no coef_"):
        average_estimator(Recorder(), linear.SGDClassifier())
    with pytest.raises(ConfigError, match="average=False"):
        average_estimator(Recorder(), linear.SGDClassifier(average=True).fit(x, y))


@pytest.mark.parametrize("intercept", [True, False])
def test_an_intercept_is_averaged_if_it_is_fitted(intercept):
    linear = pytest.importorskip("sklearn.linear_model")
    from tacit.integrations.scikit_learn import average_estimator

    x, y = (part.numpy() for part in samples(0))
    peer, estimator = Recorder(), linear.LinearRegression(fit_intercept=intercept).fit(x, y)
    before = estimator.coef_.copy(), estimator.predict(x)
    average_estimator(peer, estimator)
    assert set(peer.averages[0][1]) == {"coef_"} | ({"intercept_"} if intercept else set())
    assert np.allclose(estimator.coef_, before[0] / 2)
    assert np.allclose(estimator.predict(x), before[1] / 2), "the recorder gives back halves"


def test_a_replaced_model_takes_its_momentum_along():
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    AveragingPlan(Recorder()).average(module, [optimizer])
    assert optimizer.state
    AveragingPlan(Recorder(replaced=("a",))).average(module, [optimizer])
    assert not optimizer.state


def test_plans_that_cannot_be_meant_are_refused():
    for wrong in ({"every_epochs": 0}, {"every_steps": 0}, {"every_steps": 1.5}):
        with pytest.raises(ConfigError, match="whole number of at least 1"):
            AveragingPlan(Recorder(), **wrong)
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(ConfigError, match="no parameter is trained"):
        AveragingPlan(Recorder(), only_trainable=True).average(frozen)
