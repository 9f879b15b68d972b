from collections import Counter

from adamab.demo import demo_generator, load_demo, synthetic_texts
from adamab.providers.async_bridge import run_sync
from adamab.providers.generators.base import Request
from adamab.task import normalised_text


def test_five_messages_per_class_are_given_and_forty_tested():
    data = load_demo()
    assert len(data.task.classes) == 12
    assert set(Counter(s.class_name for s in data.task.samples).values()) == {5}
    assert set(Counter(s.class_name for s in data.test).values()) == {40}
    assert all(spec.description for spec in data.task.classes)
    few = load_demo(n_given=1)
    assert set(few.task.samples) < set(data.task.samples)
    assert len(few.test) == 12 * 44


def test_no_test_message_is_in_reach_of_training():
    data = load_demo()
    training = {normalised_text(s.text) for s in data.task.samples} | {
        normalised_text(t) for t in synthetic_texts()
    }
    assert not training & {normalised_text(s.text) for s in data.test}


def test_recording_hands_out_thirty_per_class():
    spec = load_demo().task.classes[0]
    batch = run_sync(demo_generator(seed=1).generate(Request(spec, 0, 99, (), ())))
    assert len(batch) == 30
    assert batch.closed is not None
    assert set(batch.texts) <= set(synthetic_texts())
