// /v1/files and /v1/batches over loopback, with the scripted model.
#include <gtest/gtest.h>

#include <fstream>

#include "server/api/models.h"
#include "server/batch/batch_queue.h"
#include "unit/server/running_server.h"
#include "unit/server/temporary_files.h"

namespace quire {
namespace {

ServerOptions with_files(const TemporaryFolder& folder, std::vector<std::string> keys = {}) {
  ServerOptions options;
  options.files_dir = folder.path("files");
  options.api_keys = std::move(keys);
  return options;
}

std::string bearer(const std::string& key) { return key.empty() ? "" : "Authorization: Bearer " + key + "\r\n"; }

// A request to complete "Hi", with more fields of its body.
std::string request_of(const std::string& custom_id, const std::string& fields = "") {
  return R"({"custom_id": ")" + custom_id +
         R"(", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hi")" + fields + "}}\n";
}

std::string form(std::string_view text, const std::string& more = "") {
  return "--BB\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n" + more +
         "--BB\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n" + std::string(text) +
         "\r\n--BB--\r\n";
}

HttpAnswer upload(uint16_t port, std::string_view text, const std::string& key = "", const std::string& more = "") {
  return HttpClient(port).call("POST", "/v1/files", form(text, more),
                               bearer(key) + "Content-Type: multipart/form-data; boundary=BB\r\n");
}

HttpAnswer call_api(uint16_t port, std::string_view method, const std::string& path, const std::string& key = "",
                    std::string_view body = {}) {
  return HttpClient(port).call(method, path, body, bearer(key));
}

std::string batch_body(const std::string& file, const std::string& endpoint = "/v1/completions") {
  return R"({"input_file_id": ")" + file + R"(", "endpoint": ")" + endpoint +
         R"(", "completion_window": "24h", "metadata": {"a": "b"}})";
}

// Uploads the lines and makes a batch of them. Returns its id.
std::string begin_batch(uint16_t port, const std::string& lines, const std::string& key = "") {
  const std::string file = upload(port, lines, key).json()["id"];
  return call_api(port, "POST", "/v1/batches", key, batch_body(file)).json()["id"];
}

Json batch_of(uint16_t port, const std::string& id, const std::string& key = "") {
  return call_api(port, "GET", "/v1/batches/" + id, key).json();
}

Json ended_batch(uint16_t port, const std::string& id, const std::string& key = "") {
  Json batch;
  EXPECT_TRUE(eventually([&] {
    batch = batch_of(port, id, key);
    const std::string status = batch["status"];
    return status == "completed" || status == "failed" || status == "cancelled" || status == "expired";
  })) << batch;
  return batch;
}

// The results by custom_id.
std::map<std::string, Json> results(uint16_t port, const Json& file, const std::string& key = "") {
  std::map<std::string, Json> found;
  if (file.is_null()) return found;
  std::istringstream text(call_api(port, "GET", "/v1/files/" + file.get<std::string>() + "/content", key).body);
  for (std::string line; std::getline(text, line);) {
    const Json json = Json::parse(line);
    EXPECT_TRUE(found.emplace(json["custom_id"], json).second) << "twice: " << line;
  }
  return found;
}

TEST(Batches, AreAnswered) {
  const TemporaryFolder folder;
  RunningServer running(with_files(folder));
  std::string lines = "\n";
  for (int i = 0; i < 200; ++i) lines += request_of("r" + std::to_string(i)) + (i % 50 == 0 ? "\r\n" : "");
  lines += request_of("wrong", R"(, "temperature": -1)") + request_of("unknown", R"(, "model": "other")");
  const Json file = upload(running.port(), lines).json();
  EXPECT_EQ(file["bytes"], lines.size());
  EXPECT_EQ(file["filename"], "in.jsonl");
  EXPECT_EQ(call_api(running.port(), "GET", "/v1/files/" + file["id"].get<std::string>() + "/content").body, lines);
  const HttpAnswer made = call_api(running.port(), "POST", "/v1/batches", "", batch_body(file["id"]));
  EXPECT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(made.json()["status"], "validating");
  EXPECT_EQ(made.json()["metadata"], Json({{"a", "b"}}));
  const Json batch = ended_batch(running.port(), made.json()["id"]);
  EXPECT_EQ(batch["status"], "completed") << batch;
  EXPECT_EQ(batch["request_counts"], Json({{"total", 202}, {"completed", 200}, {"failed", 2}}));
  for (const char* time : {"created_at", "in_progress_at", "finalizing_at", "completed_at"})
    EXPECT_TRUE(batch[time].is_number()) << time;
  const auto answers = results(running.port(), batch["output_file_id"]);
  EXPECT_EQ(answers.size(), 200u);
  EXPECT_EQ(answers.at("r7")["response"]["status_code"], 200);
  EXPECT_EQ(answers.at("r7")["response"]["body"]["choices"][0]["text"], "Hello");
  EXPECT_TRUE(answers.at("r7")["error"].is_null());
  const auto failures = results(running.port(), batch["error_file_id"]);
  EXPECT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures.at("wrong")["response"]["status_code"], 400);
  EXPECT_EQ(failures.at("wrong")["response"]["body"]["error"]["param"], "temperature");
  EXPECT_EQ(failures.at("unknown")["response"]["status_code"], 404);
  EXPECT_EQ(call_api(running.port(), "GET", "/v1/batches").json()["data"].size(), 1u);
  EXPECT_EQ(call_api(running.port(), "GET", "/v1/files?purpose=batch_output").json()["data"].size(), 2u);
}

TEST(Batches, AreCountedInMetrics) {
  const TemporaryFolder folder;
  ServerOptions options = with_files(folder);
  options.max_running = 4;  // three requests of batches
  RunningServer running(options);
  running.model.endless = true;
  const auto metric = [&](const std::string& name) {
    const std::string text = "\n" + HttpClient(running.port()).get("/metrics").body;
    const size_t at = text.find("\nquire:" + name + " ");
    return at == text.npos ? -1 : std::stoi(text.substr(at + 8 + name.size()));
  };
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += request_of("r" + std::to_string(i), R"(, "max_tokens": 100000000)");
  const std::string first = begin_batch(running.port(), lines), second = begin_batch(running.port(), lines);
  const auto expect_metric = [&](const std::string& name, int value) {
    EXPECT_TRUE(eventually([&] { return metric(name) == value; })) << name << " is " << metric(name);
  };
  expect_metric("batch_requests_running", 3);
  expect_metric("batch_requests_waiting", 7);  // the second batch waits until its file is checked
  expect_metric("batches{status=\"in_progress\"}", 1);
  expect_metric("batches{status=\"validating\"}", 1);
  EXPECT_EQ(call_api(running.port(), "POST", "/v1/batches/" + second + "/cancel").status, 200);
  ended_batch(running.port(), second);
  expect_metric("batches{status=\"validating\"}", 0);
  expect_metric("batches_ended_total{status=\"cancelled\"}", 1);
  call_api(running.port(), "POST", "/v1/batches/" + first + "/cancel");
  ended_batch(running.port(), first);
  expect_metric("batch_requests_waiting", 0);
  expect_metric("batch_requests_total{result=\"failed\"}", 10);  // those that are left when a batch ends
  const std::string third = begin_batch(running.port(), request_of("a") + request_of("b", R"(, "temperature": -1)"));
  ended_batch(running.port(), third);
  expect_metric("batches_ended_total{status=\"completed\"}", 1);
  expect_metric("batch_requests_total{result=\"completed\"}", 1);
  expect_metric("batch_requests_total{result=\"failed\"}", 11);
  expect_metric("batch_requests_running", 0);
  expect_metric("batches{status=\"in_progress\"}", 0);
}

TEST(Batches, FailBeforeTheFirstAnswerIfTheInputIsWrong) {
  const TemporaryFolder folder;
  RunningServer running(with_files(folder));
  const std::string lines = request_of("a") + "nonsense\n" + request_of("a") +
                            R"({"custom_id": "c", "method": "POST", "url": "/v1/embeddings", "body": {}})" + "\n";
  const Json batch = ended_batch(running.port(), begin_batch(running.port(), lines));
  EXPECT_EQ(batch["status"], "failed");
  std::vector<std::string> found;
  for (const Json& error : batch["errors"]["data"])
    found.push_back(error["code"].get<std::string>() + " " + error["line"].dump());
  EXPECT_EQ(found, (std::vector<std::string>{"invalid_json_line 2", "duplicate_custom_id 3", "mismatched_endpoint 4"}));
  EXPECT_TRUE(batch["output_file_id"].is_null() && batch["error_file_id"].is_null());
  EXPECT_EQ(running.model.submitted(), 0u);
  EXPECT_EQ(ended_batch(running.port(), begin_batch(running.port(), "\n \n"))["errors"]["data"][0]["code"],
            "empty_file");
}

TEST(Batches, BoundLinesAndRequests) {
  const TemporaryFolder folder;
  ServerOptions options = with_files(folder);
  options.max_body_bytes = 1000;
  options.max_batch_requests = 2;
  RunningServer running(options);
  const std::string large = request_of("large", R"(, "user": ")" + std::string(5000, 'x') + "\"");
  const Json batch = ended_batch(
      running.port(), begin_batch(running.port(), request_of("a") + large + request_of("c") + request_of("d")));
  EXPECT_EQ(batch["status"], "failed");
  EXPECT_EQ(batch["errors"]["data"][0]["code"], "line_too_long");
  EXPECT_EQ(batch["errors"]["data"][1]["code"], "too_many_requests");
  EXPECT_EQ(batch["errors"]["data"].size(), 2u);
}

TEST(Batches, AreRefusedWithAReason) {
  const TemporaryFolder folder;
  RunningServer running(with_files(folder));
  const std::string file = upload(running.port(), request_of("a")).json()["id"];
  const auto refused = [&](const std::string& body) {
    const HttpAnswer answer = call_api(running.port(), "POST", "/v1/batches", "", body);
    return std::to_string(answer.status) + " " + answer.error_param();
  };
  EXPECT_EQ(refused("x"), "400 ");
  EXPECT_EQ(refused("{}"), "400 input_file_id");
  EXPECT_EQ(refused(batch_body("file-none")), "400 input_file_id");
  EXPECT_EQ(refused(batch_body("../" + file)), "400 input_file_id");
  EXPECT_EQ(refused(batch_body(file, "/v1/models")), "400 endpoint");
  const std::string begin = R"({"input_file_id": ")" + file + R"(", "endpoint": "/v1/completions")";
  EXPECT_EQ(refused(begin + "}"), "400 completion_window");
  for (const char* window : {"24", "0h", "1000h", "24hours", "-1h"})
    EXPECT_EQ(refused(begin + R"(, "completion_window": ")" + window + "\"}"), "400 completion_window") << window;
  EXPECT_EQ(refused(begin + R"(, "completion_window": "24h", "metadata": {"a": 1}})"), "400 metadata.a");
  EXPECT_EQ(refused(begin +
                    R"(, "completion_window": "24h", "output_expires_after": {"anchor": "created_at", "seconds": 1}})"),
            "400 output_expires_after.seconds");
  EXPECT_EQ(call_api(running.port(), "GET", "/v1/batches/batch_none").status, 404);
  EXPECT_EQ(call_api(running.port(), "POST", "/v1/batches/batch_none/cancel").status, 404);
  EXPECT_EQ(call_api(running.port(), "GET", "/v1/batches?limit=0").status, 400);
  EXPECT_EQ(call_api(running.port(), "DELETE", "/v1/batches").status, 405);
}

TEST(Files, RefuseUploadsThatAreNone) {
  const TemporaryFolder folder;
  ServerOptions options = with_files(folder);
  options.max_file_bytes = 3 << 20;
  RunningServer running(options);
  const auto status = [&](const std::string& body, const std::string& type = "multipart/form-data; boundary=BB") {
    return HttpClient(running.port()).call("POST", "/v1/files", body, "Content-Type: " + type + "\r\n").status;
  };
  EXPECT_EQ(status("{}", "application/json"), 415);
  EXPECT_EQ(status("x"), 400);
  EXPECT_EQ(status(form("x", "--BB\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n1\r\n")), 400);
  EXPECT_EQ(status("--BB\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--BB--"), 400)
      << "no file";
  EXPECT_EQ(status("--BB\r\nContent-Disposition: form-data; name=\"file\"; filename=a\r\n\r\nx\r\n--BB--"), 400)
      << "no purpose";
  EXPECT_EQ(status(form("x").substr(0, form("x").size() - 4)), 400) << "no last boundary";
  EXPECT_EQ(status(form(std::string(3 << 20, 'x'))), 200);
  EXPECT_EQ(status(form(std::string((3 << 20) + 1, 'x'))), 413);
  EXPECT_EQ(status(form(std::string(8 << 20, 'x'))), 413);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("files/uploads")));
  EXPECT_EQ(call_api(running.port(), "GET", "/v1/files/..%2Fquire.sqlite/content").status, 404);
  EXPECT_EQ(upload(running.port(), "x", "",
                   "--BB\r\nContent-Disposition: form-data; name=\"expires_after[seconds]\"\r\n\r\n5\r\n")
                .status,
            400);
  const Json expiring =
      upload(running.port(), "x", "",
             "--BB\r\nContent-Disposition: form-data; name=\"expires_after[anchor]\"\r\n\r\ncreated_at\r\n"
             "--BB\r\nContent-Disposition: form-data; name=\"expires_after[seconds]\"\r\n\r\n3600\r\n")
          .json();
  EXPECT_EQ(expiring["expires_at"], expiring["created_at"].get<int64_t>() + 3600);
}

TEST(Files, ArriveInChunksAndSurviveClientsThatLeave) {
  const TemporaryFolder folder;
  RunningServer running(with_files(folder));
  HttpClient client(running.port());
  client.send(
      "POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Type: multipart/form-data; "
      "boundary=BB\r\n\r\n");
  const std::string body = form("chunked text");
  for (size_t at = 0; at < body.size(); at += 10) {
    const std::string chunk = body.substr(at, 10);
    client.send(fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk));
  }
  client.send("0\r\n\r\n");
  const HttpAnswer answer = client.read_answer();
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["bytes"], 12);
  EXPECT_EQ(client.get("/health").status, 200) << "the connection goes on";
  {
    HttpClient leaving(running.port());
    leaving.send(
        "POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\nContent-Type: multipart/form-data; "
        "boundary=BB\r\n\r\n" +
        body.substr(0, 150));
    EXPECT_TRUE(eventually([&] { return !std::filesystem::is_empty(folder.path("files/uploads")); }));
  }
  EXPECT_TRUE(eventually([&] { return std::filesystem::is_empty(folder.path("files/uploads")); }));
}

TEST(Batches, NeedAFolder) {
  RunningServer running;
  for (const char* path : {"/v1/files", "/v1/batches", "/v1/files/x"}) {
    const HttpAnswer answer = call_api(running.port(), "GET", path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_NE(answer.body.find("--files-dir"), std::string::npos);
  }
  EXPECT_EQ(upload(running.port(), "x").status, 404);
}

TEST(Batches, BelongToAKey) {
  const TemporaryFolder folder;
  RunningServer running(with_files(folder, {"sk-one", "sk-two"}));
  const uint16_t port = running.port();
  EXPECT_EQ(upload(port, "x").status, 401);
  const std::string id = begin_batch(port, request_of("a"), "sk-one");
  const Json batch = ended_batch(port, id, "sk-one");
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(running.model.last_request().tenant_priority, 1'000'000);
  EXPECT_TRUE(running.model.last_request().tenant.starts_with("key-"));
  const std::string output = batch["output_file_id"];
  for (const std::string& path : {"/v1/batches/" + id, "/v1/files/" + output, "/v1/files/" + output + "/content"}) {
    EXPECT_EQ(call_api(port, "GET", path, "sk-one").status, 200) << path;
    EXPECT_EQ(call_api(port, "GET", path, "sk-two").status, 404) << path;
  }
  EXPECT_EQ(call_api(port, "DELETE", "/v1/files/" + output, "sk-two").status, 404);
  EXPECT_TRUE(call_api(port, "GET", "/v1/files", "sk-two").json()["data"].empty());
  EXPECT_EQ(call_api(port, "POST", "/v1/batches", "sk-two", batch_body(batch["input_file_id"])).error_param(),
            "input_file_id");
}

TEST(Batches, GoOnAfterARestart) {
  const TemporaryFolder folder;
  std::string id, lines;
  for (int i = 0; i < 300; ++i) lines += request_of("r" + std::to_string(i));
  uint64_t before = 0;
  {
    RunningServer running(with_files(folder));
    running.model.token_time = std::chrono::microseconds(2000);
    id = begin_batch(running.port(), lines);
    ASSERT_TRUE(eventually([&] { return batch_of(running.port(), id)["request_counts"]["completed"] > 60; }));
    before = batch_of(running.port(), id)["request_counts"]["completed"];
  }
  RunningServer running(with_files(folder));
  const Json batch = ended_batch(running.port(), id);
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(batch["request_counts"], Json({{"total", 300}, {"completed", 300}, {"failed", 0}}));
  EXPECT_EQ(results(running.port(), batch["output_file_id"]).size(), 300u);
  EXPECT_LE(running.model.submitted(), 300 - before) << "what is answered is not computed again";
}

TEST(Batches, AreCancelled) {
  const TemporaryFolder folder;
  RunningServer running(with_files(folder));
  running.model.token_time = std::chrono::microseconds(20'000);
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += request_of("r" + std::to_string(i));
  const std::string id = begin_batch(running.port(), lines), second = begin_batch(running.port(), lines);
  ASSERT_TRUE(eventually([&] { return batch_of(running.port(), id)["request_counts"]["completed"] > 0; }));
  EXPECT_EQ(batch_of(running.port(), second)["status"], "validating") << "a key's batches follow each other";
  EXPECT_EQ(call_api(running.port(), "POST", "/v1/batches/" + second + "/cancel").json()["status"], "cancelling");
  EXPECT_EQ(ended_batch(running.port(), second)["status"], "cancelled");
  EXPECT_EQ(call_api(running.port(), "POST", "/v1/batches/" + id + "/cancel").json()["status"], "cancelling");
  const Json batch = ended_batch(running.port(), id);
  EXPECT_EQ(batch["status"], "cancelled");
  const auto answers = results(running.port(), batch["output_file_id"]),
             rest = results(running.port(), batch["error_file_id"]);
  EXPECT_EQ(answers.size() + rest.size(), 500u);
  EXPECT_EQ(rest.begin()->second["error"]["code"], "batch_cancelled");
  EXPECT_TRUE(eventually([&] { return running.server->models().admission()->inside() == 0; }));
  EXPECT_EQ(call_api(running.port(), "POST", "/v1/batches/" + id + "/cancel").status, 409);
}

TEST(Batches, Expire) {
  const TemporaryFolder folder;
  std::string id;
  {
    FileStore files(folder.path("files"), {});
    const auto sent = files.begin_upload("");
    sent->write(request_of("a") + request_of("b"));
    BatchTable table(files);
    Batch batch = table.insert(
        "", 0, {.endpoint = "/v1/completions", .input_file = sent->commit("f", "batch", {}).id, .window = 0});
    id = batch.id;
    batch.total = 2;
    table.begin(batch, 1);
  }
  RunningServer running(with_files(folder));
  const Json batch = ended_batch(running.port(), id);
  EXPECT_EQ(batch["status"], "expired");
  EXPECT_EQ(batch["request_counts"], Json({{"total", 2}, {"completed", 0}, {"failed", 2}}));
  EXPECT_EQ(results(running.port(), batch["error_file_id"]).at("a")["error"]["code"], "batch_expired");
  EXPECT_EQ(running.model.submitted(), 0u);
}

TEST(Batches, LeaveRoomForOtherRequests) {
  const TemporaryFolder folder;
  ServerOptions options = with_files(folder);
  options.max_running = 8;
  options.max_queue = 8;
  RunningServer running(options);
  running.model.token_time = std::chrono::microseconds(5000);
  std::atomic<int> most{0};
  const auto admission = [&] { return running.server->models().admission()->inside(); };
  running.model.on_submit = [&](const Request&) { most = std::max(most.load(), admission()); };
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += request_of("r" + std::to_string(i));
  const std::string id = begin_batch(running.port(), lines);
  ASSERT_TRUE(eventually([&] { return batch_of(running.port(), id)["request_counts"]["completed"] > 0; }));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(HttpClient(running.port()).post(kChatPath, chat_body()).status, 200);
  EXPECT_EQ(call_api(running.port(), "POST", "/v1/batches/" + id + "/cancel").status, 200);
  ended_batch(running.port(), id);
  EXPECT_LE(most, 6) << "three quarters of the engine's places";
  EXPECT_GE(most, 2);
}

TEST(Batches, WaitForADiskThatFails) {
  const TemporaryFolder folder;
  FileStore files(folder.path("files"), {});
  ScriptedCompleter model;
  std::vector<ServedModel> served;
  served.push_back({.completer = &model});
  const Models models(std::move(served), {});
  const auto sent = files.begin_upload("");
  sent->write(request_of("a") + request_of("b"));
  const StoredFile input = sent->commit("f", "batch", {});
  BatchQueueOptions options;
  options.retry = std::chrono::milliseconds(50);
  // A folder has the name of the file of answers, until it is moved away.
  Batch batch;
  {
    BatchTable table(files);
    batch = table.insert("", 0, {.endpoint = "/v1/completions", .input_file = input.id});
  }
  std::filesystem::create_directory(files.content(batch.output_file));
  BatchQueue queue(files, models, options);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(queue.table().find("", batch.id)->ended);
  std::filesystem::remove(files.content(batch.output_file));
  EXPECT_TRUE(eventually([&] { return queue.table().find("", batch.id)->status == batch_status::kCompleted; }));
  EXPECT_EQ(queue.table().find("", batch.id)->completed, 2);
}

TEST(Batches, EndIfTheirInputIsLost) {
  const TemporaryFolder folder;
  FileStore files(folder.path("files"), {});
  ScriptedCompleter model;
  std::vector<ServedModel> served;
  served.push_back({.completer = &model});
  const Models models(std::move(served), {});
  const auto sent = files.begin_upload("");
  sent->write(request_of("a"));
  const StoredFile input = sent->commit("f", "batch", {});
  std::filesystem::remove(files.content(input.id));
  BatchQueue queue(files, models, {});
  const Batch batch = queue.create({}, {.endpoint = "/v1/completions", .input_file = input.id});
  EXPECT_TRUE(eventually([&] { return queue.table().find("", batch.id)->status == batch_status::kFailed; }));
}

}  // namespace
}  // namespace quire
