"""Serves encoders and rerankers: tiny random models whose vocabularies spell ASCII text."""

import math

import httpx
import pytest
from conftest import GOLDEN, Server, quire, skip_without_binary

FILES = GOLDEN / "encoders-gguf"


@pytest.fixture
def serve():
    skip_without_binary()
    started = []

    def start(name):
        started.append(Server(model=FILES / f"{name}.gguf"))
        return started[-1]

    yield start
    for running in started:
        running.stop()


def post(server, path, **body):
    return httpx.post(server.base + path, json=body, timeout=60)


def embeddings(server, *texts, **fields):
    data = post(server, "/v1/embeddings", input=list(texts), **fields).json()["data"]
    return [entry["embedding"] for entry in data]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b))


@pytest.mark.parametrize("name", ["bert", "nomic_bert", "modernbert", "xlm_roberta", "qwen3_embedding"])
def test_embeddings_have_length_one_and_do_not_depend_on_their_batch(serve, name):
    server = serve(name)
    texts = ["one text", "another text, a little longer", "a third"]
    alone = [embeddings(server, text)[0] for text in texts]
    assert embeddings(server, *texts * 3) == alone * 3
    for vector in alone:
        assert math.isclose(cosine(vector, vector), 1, abs_tol=1e-5)
    assert cosine(alone[0], alone[1]) < 0.9999


def test_pooling_of_the_request_wins(serve):
    server = serve("bert")
    by_file, cls, mean = (embeddings(server, "some text", **fields)[0] for fields in ({}, {"pooling": "cls"}, {"pooling": "mean"}))
    assert by_file == cls != mean


@pytest.mark.parametrize("name", ["bert_cross", "xlm_roberta_cross", "modernbert_cross"])
def test_a_cross_encoder_ranks_documents_as_it_scores_them(serve, name):
    server = serve(name)
    documents = ["first document", "the second one", "3"]
    ranked = post(server, "/v1/rerank", query="a question", documents=documents).json()["results"]
    scored = post(server, "/v1/score", text_1="a question", text_2=documents).json()["data"]
    assert sorted((r["index"], r["relevance_score"]) for r in ranked) == [(s["index"], s["score"]) for s in scored]
    scores = [r["relevance_score"] for r in ranked]
    assert scores == sorted(scores, reverse=True) and all(0 < s < 1 for s in scores) and len(set(scores)) == 3
    assert [r["document"]["text"] for r in ranked] == [documents[r["index"]] for r in ranked]
    alone = post(server, "/v1/score", text_1="a question", text_2=documents[1]).json()["data"][0]["score"]
    assert alone == scored[1]["score"]
    refused = post(server, "/v1/embeddings", input="x")
    assert refused.status_code == 400 and "/v1/rerank" in refused.json()["error"]["message"]


def test_an_embedding_model_ranks_by_cosines(serve):
    server = serve("qwen3_embedding")
    query, document = embeddings(server, "a question", "a document")
    ranked = post(server, "/v1/rerank", query="a question", documents=["a document", "a question"]).json()["results"]
    assert ranked[0]["index"] == 1 and math.isclose(ranked[0]["relevance_score"], 1, abs_tol=1e-5)
    assert math.isclose(ranked[1]["relevance_score"], cosine(query, document), abs_tol=1e-5)


def test_long_texts_are_refused_or_cut(serve):
    server = serve("bert_cross")
    long = "word " * 200
    refused = post(server, "/v1/rerank", query="q", documents=[long])
    assert refused.status_code == 400 and refused.json()["error"]["code"] == "context_length_exceeded"
    cut = post(server, "/v1/rerank", query="q", documents=[long], truncate_prompt_tokens=-1).json()
    assert cut["usage"]["prompt_tokens"] <= 128


def test_an_encoder_writes_no_text(serve):
    server = serve("bert")
    refused = post(server, "/v1/completions", prompt="x")
    assert refused.status_code == 400 and "/v1/embeddings" in refused.json()["error"]["message"]
    done = quire("run", "-m", FILES / "bert.gguf", "-p", "Hello")
    assert done.returncode == 1 and "does not generate text" in done.stderr and done.stderr.count("\n") == 1
