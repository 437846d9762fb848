// Structured output in requests: the forms of all clients, and what is refused.
#include <gtest/gtest.h>

#include "unit/server/parse_request.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

using Kind = ConstraintSource::Kind;

ConstraintSource source(Api api, const std::string& fields) {
  ConstraintSource read =
      parse(api, body_with(api, fields)).constraint_source.value_or(ConstraintSource{.text = "none"});
  read.label = {};  // the field, which errors name
  return read;
}

TEST(StructuredOutput, IsReadInTheFormsOfAllClients) {
  const ConstraintSource schema{.kind = Kind::kJsonSchema, .text = R"({"type":"string","maxLength":3})"};
  const std::string text = R"({"type": "string", "maxLength": 3})";
  for (const auto& [api, fields] : std::vector<std::pair<Api, std::string>>{
           {Api::kChat,
            R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": )" +
                text + "}}"},
           {Api::kCompletion, R"("response_format": {"type": "json_schema", "schema": )" + text + "}"},
           {Api::kChat, R"("response_format": {"type": "json_object", "schema": )" + text + "}"},
           {Api::kChat, R"("structured_outputs": {"json": )" + text + R"(, "regex": null})"},
           {Api::kChat, R"("structured_outputs": {"json": "{\"type\": \"string\", \"maxLength\": 3}"})"},
           {Api::kCompletion, R"("guided_json": )" + text},
           {Api::kCompletion, R"("json_schema": )" + text},
           {Api::kResponse, R"("text": {"format": {"type": "json_schema", "name": "n", "schema": )" + text + "}}"},
           {Api::kMessage, R"("output_format": {"type": "json_schema", "schema": )" + text + "}"},
           {Api::kMessage, R"("output_config": {"format": {"type": "json_schema", "schema": )" + text + "}}"}}) {
    EXPECT_EQ(source(api, fields), schema) << fields;
  }
  const ConstraintSource object{.kind = Kind::kJsonObject};
  EXPECT_EQ(source(Api::kChat, R"("response_format": {"type": "json_object"})"), object);
  EXPECT_EQ(source(Api::kChat, R"("structured_outputs": {"json_object": true})"), object);
  const ConstraintSource regex{.kind = Kind::kRegex, .text = "a+"};
  EXPECT_EQ(source(Api::kChat, R"("structured_outputs": {"regex": "a+"})"), regex);
  EXPECT_EQ(source(Api::kChat, R"("guided_regex": "a+")"), regex);
  const ConstraintSource choice{.kind = Kind::kChoice, .choices = {"a", "b"}};
  EXPECT_EQ(source(Api::kChat, R"("structured_outputs": {"choice": ["a", "b"]})"), choice);
  EXPECT_EQ(source(Api::kCompletion, R"("guided_choice": ["a", "b"])"), choice);
  const ConstraintSource grammar{.kind = Kind::kGrammar, .text = "root ::= \"a\""};
  for (const std::string name : {"grammar", "guided_grammar"})
    EXPECT_EQ(source(Api::kChat, '"' + name + R"(": "root ::= \"a\"")"), grammar);
}

TEST(StructuredOutput, HasNoPropertiesThatNobodyAskedFor) {
  EXPECT_EQ(source(Api::kChat, R"("json_schema": {"properties": {"a": {}}})").text,
            R"({"properties":{"a":{}},"additionalProperties":false})");
}

TEST(StructuredOutput, IsAbsentByDefault) {
  for (const std::string fields : {R"("response_format": {"type": "text"})", R"("structured_outputs": {})",
                                   R"("grammar": "")", R"("json_schema": {})", R"("response_format": null)"}) {
    EXPECT_FALSE(parse_chat(chat_with(fields)).constraint_source) << fields;
  }
}

TEST(StructuredOutput, OfBadFormGetsA400ThatNamesTheField) {
  for (const auto& [fields, param] : std::vector<std::pair<std::string, std::string>>{
           {R"("response_format": "json")", "response_format"},
           {R"("response_format": {})", "response_format.type"},
           {R"("response_format": {"type": "xml"})", "response_format.type"},
           {R"("response_format": {"type": "json_schema"})", "response_format.schema"},
           {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a"}})",
            "response_format.json_schema.schema"},
           {R"("response_format": {"type": "json_schema", "json_schema": {"schema": [1]}})",
            "response_format.json_schema.schema"},
           {R"("structured_outputs": {"structural_tag": "x"})", "structured_outputs.structural_tag"},
           {R"("structured_outputs": {"json": {}, "regex": "a"})", "structured_outputs.regex"},
           {R"("structured_outputs": {"disable_any_whitespace": true})", "structured_outputs.disable_any_whitespace"},
           {R"("guided_regex": "")", "guided_regex"},
           {R"("guided_json": "{")", "guided_json"},
           {R"("guided_choice": [])", "guided_choice"},
           {R"("guided_choice": [""])", "guided_choice[0]"},
           {R"("guided_choice": [1])", "guided_choice[0]"},
           {R"("guided_whitespace_pattern": " ")", "guided_whitespace_pattern"},
           {R"("json_schema": {"type": "object"}, "grammar": "root ::= \"a\"")", "grammar"}}) {
    EXPECT_EQ(chat_error(chat_with(fields)).param, param) << fields;
  }
}

// A constraint that is dropped makes a wrong answer of a right one.
TEST(StructuredOutput, OfOtherEnginesWorksOrIsRefused) {
  const auto source = [](Api api, const std::string& fields) {
    const ApiRequest request = parse(api, body_with(api, fields));
    return request.constraint_source.value_or(ConstraintSource{});
  };
  for (const Api api :
       {Api::kChat, Api::kCompletion, Api::kResponse, Api::kMessage, Api::kInfill, Api::kLlamaCompletion}) {
    EXPECT_EQ(source(api, R"("regex": "a+")").kind, ConstraintSource::Kind::kRegex);  // SGLang's
    EXPECT_EQ(source(api, R"("ebnf": "root ::= \"a\"")").kind, ConstraintSource::Kind::kGrammar);
    for (const char* name :
         {"structural_tag", "lark_grammar", "guided_lark", "guided_decoding", "response_schema", "responseSchema",
          "output_schema", "jsonSchema", "json-schema", "constraints", "choices", "json_mode", "responseFormat",
          "grammar_lazy", "extra_body", "sampling_params", "parameters", "GrammarText", "response_mime_type"}) {
      const std::string field = '"' + std::string(name) + "\": ";
      EXPECT_EQ(error_of(api, body_with(api, field + R"({"type": "regex", "value": "a+"})")).param, name);
      EXPECT_NO_THROW(parse(api, body_with(api, field + "null")));
      EXPECT_NO_THROW(parse(api, body_with(api, field + "{}")));
    }
  }
  EXPECT_EQ(error_of(Api::kOllamaGenerate, R"({"prompt": "a", "options": {"guided_tokens": [1]}})").param,
            "options.guided_tokens");
  EXPECT_EQ(source(Api::kOllamaGenerate, R"("options": {"regex": "a+"})").kind, ConstraintSource::Kind::kRegex);
  // Which program would compute it changes no answer, and other APIs have no answers.
  EXPECT_EQ(
      parse_chat(chat_with(R"("guided_decoding_backend": "outlines", "grammar_backend": "x")")).without_effect.size(),
      2u);
  EXPECT_NO_THROW(parse(Api::kEmbedding, body_with(Api::kEmbedding, R"("output_schema": 1)")));
}

TEST(StructuredOutput, ThatCannotBeHonouredGetsA400WithTheKeyword) {
  RunningServer server;
  HttpClient client(server.port());
  const HttpAnswer refused = client.post(
      kChatPath,
      chat_with(R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"uniqueItems": true}}})"));
  EXPECT_EQ(refused.status, 400);
  const Json error = Json::parse(refused.body)["error"];
  EXPECT_EQ(error["param"], "response_format.json_schema.schema");
  EXPECT_EQ(error["code"], "structured_output_refused");
  EXPECT_NE(error["message"].get<std::string>().find("uniqueItems"), std::string::npos) << error;
}

TEST(StructuredOutput, ThatReachesADeadEndIsAnErrorOfItsOwnKind) {
  RunningServer server;
  server.model.fail_at_token = 2;
  server.model.failure = FinishReason::kDeadEnd;
  HttpClient client(server.port());
  const HttpAnswer ended = client.post(kChatPath, chat_with(R"("response_format": {"type": "json_object"})"));
  EXPECT_EQ(ended.status, 422);
  EXPECT_EQ(Json::parse(ended.body)["error"]["code"], "dead_end");
}

TEST(StructuredOutput, ThatTurnsOutToNeedTooMuchIsTheClientsError) {
  RunningServer server;
  server.model.fail_at_token = 2;
  server.model.failure = FinishReason::kRefused;
  HttpClient client(server.port());
  const HttpAnswer ended = client.post(kChatPath, chat_with(R"("response_format": {"type": "json_object"})"));
  EXPECT_EQ(ended.status, 400);
  EXPECT_EQ(Json::parse(ended.body)["error"]["code"], "structured_output_refused");
}

}  // namespace
}  // namespace quire
