#include "server/batch/batch_line.h"

#include <gtest/gtest.h>

#include "json/parse.h"
#include "server/batch/result_file.h"
#include "unit/server/temporary_files.h"

namespace quire {
namespace {

// "CODE PARAM: MESSAGE"; empty: the line is a request.
std::string wrong_line(std::string_view text) {
  try {
    parse_batch_line(text);
    return {};
  } catch (const BatchLineError& error) {
    return error.code + " " + error.param + ": " + error.message;
  }
}

TEST(BatchLine, IsARequest) {
  const BatchLine line = parse_batch_line(
      R"({"custom_id": "ä-1", "method": "POST", "url": "/v1/chat/completions/", "body": {"messages": [], "seed": 7}, "x": 1})");
  EXPECT_EQ(line.custom_id, "ä-1");
  EXPECT_EQ(line.api->path, "/v1/chat/completions");
  EXPECT_EQ(line.body, R"({"messages":[],"seed":7})");
}

TEST(BatchLine, TakesTheEndpointsThatAnswerWithAWhole) {
  for (const char* url : {"/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/score", "/v1/rerank",
                          "/rerank", "/v2/rerank"})
    EXPECT_EQ(wrong_line(R"({"custom_id": "a", "method": "POST", "url": ")" + std::string(url) + R"(", "body": {}})"),
              "")
        << url;
  for (const char* url : {"/v1/models", "/v1/files", "/api/chat", "/models/load", "", "http://x/v1/completions"})
    EXPECT_TRUE(wrong_line(R"({"custom_id": "a", "method": "POST", "url": ")" + std::string(url) + R"(", "body": {}})")
                    .starts_with("invalid_url url: "))
        << url;
}

TEST(BatchLine, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"nonsense", "invalid_json_line"},
      {"[1]", "invalid_json_line"},
      {"{}", "missing_required_parameter custom_id"},
      {R"({"custom_id": 5})", "invalid_request custom_id"},
      {R"({"custom_id": ""})", "invalid_request custom_id"},
      {R"({"custom_id": "a"})", "missing_required_parameter method"},
      {R"({"custom_id": "a", "method": "GET"})", "invalid_method method"},
      {R"({"custom_id": "a", "method": "POST"})", "missing_required_parameter url"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions"})", "missing_required_parameter body"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": "x"})", "invalid_request body"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"stream": true}})",
       "invalid_request body.stream"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"x": 1}} x)", "invalid_json_line"}};
  for (const auto& [line, error] : cases) EXPECT_TRUE(wrong_line(line).starts_with(error)) << line << wrong_line(line);
  EXPECT_EQ(wrong_line(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"stream": false}})"),
            "");
  EXPECT_TRUE(wrong_line(std::string(100'000, '[')).starts_with("invalid_json_line")) << "nesting is bounded";
  const std::string long_id(kMaxCustomIdBytes + 1, 'a');
  EXPECT_TRUE(wrong_line(R"({"custom_id": ")" + long_id + "\"}").starts_with("invalid_request custom_id"));
}

TEST(BatchLine, ResultsAreJsonLines) {
  const ResultId id = result_id("line");
  const std::string line =
      result_line(id, "a\"\n", {.number = 1, .status = 400, .request_id = "r", .body = R"({"b":1})"});
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(Json::parse(line), Json::parse(R"({"id": ")" + id.text() + R"(", "custom_id": "a\"\n", "response":
      {"status_code": 400, "request_id": "r", "body": {"b": 1}}, "error": null})"));
  EXPECT_FALSE(is_answered(line));
  EXPECT_TRUE(is_answered(result_line(id, "a", {.number = 1, .status = 200, .request_id = "r", .body = "{}"})));
  const std::string wrong = error_line(id, "", "code", "why");
  EXPECT_EQ(Json::parse(wrong), Json::parse(R"({"id": ")" + id.text() + R"(", "custom_id": null, "response": null,
      "error": {"code": "code", "message": "why"}})"));
  // Not even an id that spells the mark.
  EXPECT_FALSE(is_answered(error_line(id, R"("response":{"status_code":200,)", "code", "why")));
}

TEST(BatchLine, IdsAreReadBack) {
  const ResultId id = result_id("line");
  EXPECT_EQ(parse_result_id(id.text()), id);
  EXPECT_EQ(id.text().size(), kResultIdBytes);
  EXPECT_NE(result_id("other"), id);
  EXPECT_NE(result_id_of_wrong_line(1, "line"), result_id_of_wrong_line(2, "line"));
  for (const std::string& wrong :
       {std::string(), std::string("batch_req_"), id.text() + "0", "batch_req_" + std::string(32, 'g')})
    EXPECT_EQ(parse_result_id(wrong), std::nullopt) << wrong;
}

std::string some_line(const std::string& name, int status = 200) {
  return result_line(result_id(name), name, {.number = 1, .status = status, .request_id = "r", .body = "{}"});
}

TEST(ResultFile, GoesOnAfterEveryKindOfEnd) {
  const TemporaryFolder folder;
  const std::string whole = some_line("a") + some_line("b", 500);
  const std::pair<const char*, std::string> ends[] = {
      {"nothing", ""},
      {"half a line", some_line("c").substr(0, 30)},
      {"a line without its end", some_line("c").substr(0, some_line("c").size() - 1)},
      {"zeros, as a power failure leaves", std::string(100, '\0')},
      {"zeros and a line", std::string(100, '\0') + "\n" + some_line("c")},
      {"the same line again", some_line("a")}};
  for (const auto& [what, end] : ends) {
    const std::string path = folder.write("results", whole + end);
    {
      ResultFile file(path);
      EXPECT_TRUE(file.has(result_id("a")) && file.has(result_id("b")) && !file.has(result_id("c"))) << what;
      EXPECT_EQ(file.answered(), 1u) << what;
      EXPECT_EQ(file.failed(), 1u) << what;
      EXPECT_EQ(file.bytes(), whole.size()) << what;
      EXPECT_EQ(file.offset(result_id("b")), some_line("a").size()) << what;
      file.add(result_id("c"), some_line("c"));
      file.sync();
    }
    EXPECT_EQ(std::filesystem::file_size(path), whole.size() + some_line("c").size()) << what;
    EXPECT_EQ(ResultFile(path).answered(), 2u) << what;
  }
}

}  // namespace
}  // namespace quire
