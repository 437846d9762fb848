// What servers answer: repositories, manifests, redirects and failures.
#include <gtest/gtest.h>

#include "error_of.h"
#include "hub/http_request.h"
#include "hub/http_url.h"
#include "hub/ollama_manifest.h"
#include "hub/repository.h"

namespace quire {
namespace {

const std::string kSha(40, 'a'), kDigest(64, 'b');

TEST(RepositoryReply, HasTheCommitAndTheFiles) {
  const Repository repository =
      parse_repository(R"({"id": "org/x", "sha": ")" + kSha +
                           R"(", "siblings": [{"rfilename": "a/b.gguf", "size": 12}, {"rfilename": "c"}]})",
                       "hf:org/x");
  EXPECT_EQ(repository.id, "org/x");
  EXPECT_EQ(repository.commit, kSha);
  ASSERT_EQ(repository.files.size(), 2u);
  EXPECT_EQ(repository.files[0].path, "a/b.gguf");
  EXPECT_EQ(repository.files[0].size, 12u);
  EXPECT_EQ(repository.files[1].size, 0u);
}

TEST(RepositoryReply, MustBeOne) {
  for (const std::string& text :
       {std::string("<html>"), std::string("{}"), std::string(R"({"sha": "main", "siblings": []})"),
        R"({"sha": ")" + kSha + R"("})", R"({"sha": ")" + kSha + R"(", "siblings": [{"rfilename": "../x"}]})",
        R"({"sha": ")" + kSha + R"(", "siblings": [{"rfilename": "x", "size": -1}]})"})
    EXPECT_NE(error_of([&] { parse_repository(text, "hf:org/x"); }), "") << text;
}

std::string layer(const std::string& kind) {
  return R"({"mediaType": "application/vnd.ollama.image.)" + kind + R"(", "digest": "sha256:)" + kDigest +
         R"(", "size": 5})";
}

TEST(ManifestOfOllama, NamesTheModelsBlob) {
  const OllamaManifest manifest =
      parse_ollama_manifest(R"({"layers": [)" + layer("template") + "," + layer("model") + "]}", "ollama:x");
  EXPECT_EQ(manifest.model.blob(), "sha256-" + kDigest);
  EXPECT_EQ(manifest.model.size, 5u);
  ASSERT_EQ(manifest.others.size(), 1u);
  EXPECT_EQ(manifest.others[0].kind, "template");
}

TEST(ManifestOfOllama, MustHaveOneModelAndNoAdapter) {
  for (const std::string& layers : {std::string(), layer("template"), layer("model") + "," + layer("model"),
                                    layer("model") + "," + layer("adapter")})
    EXPECT_NE(error_of([&] { parse_ollama_manifest(R"({"layers": [)" + layers + "]}", "ollama:x"); }), "") << layers;
  EXPECT_NE(error_of([] {
              parse_ollama_manifest(R"({"layers": [{"mediaType": "x.model", "digest": "sha256:../x", "size": 1}]})",
                                    "x");
            }),
            "");
}

TEST(Urls, AreEncryptedOrOfThisMachine) {
  EXPECT_EQ(checked_origin("https://Host.org/x?y", false), "https://host.org:443");
  for (const char* url : {"http://127.0.0.1:80/", "http://localhost/", "http://[::1]:9/"})
    EXPECT_EQ(error_of([&] { checked_origin(url, false); }), "") << url;
  for (const char* url :
       {"http://example.org/", "http://127.0.0.1.example.org/", "file:///x", "ftp://localhost/x", "x"})
    EXPECT_NE(error_of([&] { checked_origin(url, false); }), "") << url;
  EXPECT_EQ(checked_origin("http://example.org/", true), "http://example.org:80");
}

TEST(Urls, OfRedirectsAreCheckedToo) {
  EXPECT_EQ(redirected_url("https://a/b/c?d", "/x", false), "https://a/x");
  EXPECT_EQ(redirected_url("https://a/b/c", "https://d/e?f=1", false), "https://d/e?f=1");
  EXPECT_EQ(redirected_url("http://localhost/b", "http://127.0.0.1:9/x", false), "http://127.0.0.1:9/x");
  for (const char* location : {"", "file:///x", "http://example.org/", "http://127.0.0.1/"})
    EXPECT_NE(error_of([&] { redirected_url("https://a/", location, false); }), "") << location;
  EXPECT_NE(error_of([] { redirected_url("https://a/", "http://b/", true); }), "") << "never from https to http";
}

TEST(Urls, HidesSignaturesInMessages) {
  EXPECT_EQ(shown_url("https://a/x?Signature=secret"), "https://a/x");
  EXPECT_EQ(escape_path("a b/ü#?", true), "a%20b/%C3%BC%23%3F");
  EXPECT_EQ(escape_path("refs/pr/1", false), "refs%2Fpr%2F1");
}

TEST(Retries, WaitLongerEachTimeAndEnd) {
  RetryDelay delay;
  const HttpReply failed{.status = 503};
  auto before = std::chrono::milliseconds(0);
  int tries = 0;
  while (const auto time = delay.after_failure(failed)) {
    EXPECT_GT(*time, before);
    before = *time;
    ASSERT_LT(++tries, 20);
  }
  EXPECT_GE(tries, 3);
  delay.reset();
  EXPECT_TRUE(delay.after_failure(failed));
}

TEST(Retries, ObeyRetryAfterUpToAMinute) {
  HttpReply busy{.status = 429, .headers = {{"retry-after", "7"}}};
  EXPECT_EQ(RetryDelay().after_failure(busy), std::chrono::seconds(7));
  busy.headers["retry-after"] = "61";
  EXPECT_EQ(RetryDelay().after_failure(busy), std::nullopt);
  for (const char* odd : {"-5", "soon", "7x", "99999999999999999999"}) {
    busy.headers["retry-after"] = odd;
    EXPECT_EQ(RetryDelay().after_failure(busy), std::chrono::milliseconds(250)) << odd;
  }
}

}  // namespace
}  // namespace quire
