"""embed, score, classify and encode."""

import math

import numpy as np
import pytest
from conftest import GOLDEN

import quire
from quire import PoolingParams
from quire.llm import _probabilities

TEXTS = ["one text", "another text, a little longer", "a third"]


@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3_embedding"])
def test_embeddings_have_length_one_and_do_not_depend_on_their_batch(load, name):
    llm = load(name)
    alone = [llm.embed(text, use_tqdm=False)[0].outputs.embedding for text in TEXTS]
    together = [one.outputs.embedding for one in llm.embed(TEXTS * 3, use_tqdm=False)]
    for i, vector in enumerate(together):
        assert vector.dtype == np.float32 and vector.shape == (llm.model_info["embedding_size"],)
        assert np.array_equal(vector, alone[i % 3]) and math.isclose(float(vector @ vector), 1, abs_tol=1e-5)
    assert float(alone[0] @ alone[1]) < 0.9999


def test_embeddings_are_the_memory_of_the_engine_and_outlive_it(load):
    llm = load("bert")
    [output] = llm.embed("some text", use_tqdm=False)
    vector = output.outputs.embedding
    assert vector.base is not None and not vector.flags.owndata and vector.flags.writeable
    assert output.outputs.hidden_size == len(vector)
    copy = vector.copy()
    llm.close()
    del llm, output
    assert np.array_equal(vector, copy)


def test_pooling_of_the_options_wins(load):
    by_file, cls, mean = (
        load("bert", pooler_config=config).embed("some text", use_tqdm=False)[0].outputs.embedding
        for config in (None, {"pooling_type": "CLS"}, quire.PoolerConfig("MEAN"))
    )
    assert np.array_equal(by_file, cls) and not np.array_equal(cls, mean)


@pytest.mark.parametrize("name", ["bert_cross", "xlm_roberta_cross", "modernbert_cross"])
def test_a_cross_encoder_scores_pairs(load, name):
    llm = load(name)
    documents = ["first document", "the second one", "3"]
    one_query = llm.score("a question", documents, use_tqdm=False)
    each = llm.score(["a question"] * 3, documents, use_tqdm=False)
    scores = [one.outputs.score for one in one_query]
    assert scores == [one.outputs.score for one in each] and len(set(scores)) == 3
    assert llm.score("a question", documents[1], use_tqdm=False)[0].outputs.score == scores[1]
    with pytest.raises(quire.UnsupportedError, match="classif"):
        llm.embed("text")
    long = "word " * 2000
    with pytest.raises(quire.InvalidError, match="tokens"):
        llm.score("a question", long, use_tqdm=False)
    [cut] = llm.score("a question", long, truncate_prompt_tokens=-1, use_tqdm=False)
    assert len(cut.prompt_token_ids) == llm.model_info["max_model_len"] and math.isfinite(cut.outputs.score)


def test_scores_of_an_embedding_model_are_cosines(load):
    llm = load("bert")
    vectors = [one.outputs.embedding.astype(np.float64) for one in llm.embed(TEXTS, use_tqdm=False)]
    scores = [one.outputs.score for one in llm.score(TEXTS[0], TEXTS, use_tqdm=False)]
    assert scores == pytest.approx([float(vectors[0] @ vector) for vector in vectors]) and scores[0] == pytest.approx(1)


def test_classes_have_probabilities(load):
    llm = load("bert_cross")
    [output] = llm.classify("some text", use_tqdm=False)
    assert output.outputs.num_classes == 1 and 0 < output.outputs.probs[0] < 1
    [encoded] = llm.encode("some text", use_tqdm=False)
    assert encoded.outputs.data.tolist() == output.outputs.probs
    with pytest.raises(quire.UnsupportedError, match="no classifier"):
        load("bert").classify("text")


def test_a_model_without_a_vocabulary_takes_token_ids():
    """A decoder that classifies, from a directory."""
    with quire.LLM(str(GOLDEN / "encoders/qwen3_classify"), memory_bytes=400 << 20) as llm:
        one, other = llm.classify([[1, 2, 3], [4, 5]], use_tqdm=False)
        assert 0 < one.outputs.probs[0] < 1 and one.outputs.probs != other.outputs.probs
        with pytest.raises(quire.UnsupportedError, match="no vocabulary"):
            llm.classify("text")


def test_several_classes_add_up_to_one():
    probabilities = _probabilities(np.array([1, 2, 3], np.float32))
    assert probabilities.sum() == pytest.approx(1) and probabilities.argmax() == 2
    assert probabilities[1] / probabilities[0] == pytest.approx(math.e)
    assert _probabilities(np.array([1e4, -1e4], np.float32)).tolist() == [1, 0]


def test_encode_gives_arrays(load):
    llm = load("bert")
    [encoded] = llm.encode("some text", PoolingParams(), use_tqdm=False)
    assert np.array_equal(encoded.outputs.data, llm.embed("some text", use_tqdm=False)[0].outputs.embedding)
    assert encoded.finished and encoded.prompt_token_ids == llm.get_tokenizer().encode("some text")
    with pytest.raises(quire.UnsupportedError, match="token_classify"):
        llm.encode("x", pooling_task="token_classify")


def test_prompts_are_truncated_to_their_last_tokens(load):
    llm = load("qwen3_embedding")
    for options in ({"truncate_prompt_tokens": 3}, {"pooling_params": PoolingParams(truncate_prompt_tokens=3)}):
        [output] = llm.embed("abcdefgh", **options, use_tqdm=False)
        assert output.prompt_token_ids == llm.get_tokenizer().encode("abcdefgh")[-3:]
    for limit in (0, -2, True, 1.5):
        with pytest.raises(quire.InvalidError, match="truncate_prompt_tokens"):
            llm.embed("abc", truncate_prompt_tokens=limit)
        with pytest.raises(quire.InvalidError, match="truncate_prompt_tokens"):
            llm.score("abc", "d", truncate_prompt_tokens=limit)


def test_what_embedding_models_lack_is_refused(load):
    llm = load("bert")
    with pytest.raises(quire.UnsupportedError, match="does not generate"):
        llm.generate("x", quire.SamplingParams(max_tokens=1), use_tqdm=False)
    with pytest.raises(quire.UnsupportedError, match="dimensions=3"):
        llm.embed("x", pooling_params=PoolingParams(dimensions=3))
    with pytest.raises(quire.InvalidError, match="2 texts and data_2 3"):
        llm.score(["a", "b"], ["a", "b", "c"])
    with pytest.raises(TypeError, match="data_1"):
        llm.score(3, "x")
