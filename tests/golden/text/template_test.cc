// Real chat templates render byte for byte as with transformers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"
#include "jinja/time.h"
#include "paths.h"
#include "text/chat_template.h"

namespace quire {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

ChatInput input_of(const ordered_json& doc, const ordered_json& row) {
  ChatInput in{.messages = row.at("messages"),
               .tools = row.at("tools"),
               .add_generation_prompt = false,
               .special_tokens = doc.at("special_tokens"),
               .now = jinja::parse_time(doc.at("now").get<std::string>())};
  for (const auto& [key, value] : row.at("kwargs").items()) {
    if (key == "add_generation_prompt")
      in.add_generation_prompt = value;
    else if (key == "continue_final_message")
      in.continue_final_message = value;
    else if (key == "documents")
      in.documents = value;
    else
      in.kwargs[key] = value;
  }
  return in;
}

void expect_rendering(const ChatTemplate& chat, const ordered_json& doc, const ordered_json& row) {
  const std::string where = doc.at("template").get<std::string>() + ": " + row.at("name").get<std::string>();
  try {
    const std::string text = chat.render(input_of(doc, row));
    if (row.contains("expected"))
      EXPECT_EQ(text, row["expected"].get<std::string>()) << where;
    else
      ADD_FAILURE() << where << " should fail with " << row["error"] << " but gave\n" << text;
  } catch (const Error& e) {
    if (!row.contains("error"))
      ADD_FAILURE() << where << " failed: " << e.what();
    else if (row["error_type"] == "TemplateError") {
      EXPECT_EQ(e.what(), row["error"].get<std::string>()) << where;
      EXPECT_NE(dynamic_cast<const TemplateError*>(&e), nullptr) << where;
    } else {
      EXPECT_EQ(dynamic_cast<const TemplateError*>(&e), nullptr) << where;
    }
  }
}

TEST(ChatTemplateGolden, RendersWhatTransformersRenders) {
  const fs::path shared = shared_dir();
  const fs::path golden = shared / "golden/templates";
  if (!fs::exists(golden)) GTEST_SKIP() << "no golden templates at " << golden;
  int cases = 0;
  for (const auto& file : fs::directory_iterator(golden)) {
    if (file.path().extension() != ".json") continue;
    const ordered_json doc = ordered_json::parse(read_text_file(file.path()));
    const std::string name = doc.at("template");
    const ChatTemplate chat = ChatTemplate::parse(read_text_file(shared / "data/templates" / name), name);
    for (const ordered_json& row : doc.at("cases")) {
      expect_rendering(chat, doc, row);
      ++cases;
    }
  }
  EXPECT_GE(cases, 900);
}

}  // namespace
}  // namespace quire
