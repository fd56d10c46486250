// What the tests of file sources share.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/files.h"

namespace lockstep::data {

class FilesTest : public testing::Test {
 protected:
  FilesTest() { std::filesystem::create_directories(folder_); }
  ~FilesTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, std::string_view contents) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary | std::ios::trunc) << contents;
    return path(name);
  }
  // gzip or zlib.
  static std::string compressed(std::string_view text, Compression compression) {
    z_stream stream{};
    EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, compression == Compression::gzip ? 31 : 15, 8, 0), Z_OK);
    std::string out(text.size() + 1000, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  }

  // What an iterator gives: elements, or the messages of errors in their place ("! ...").
  static std::vector<std::string> rest(Iterator& iterator) {
    std::vector<std::string> all;
    for (Element element; all.size() < 10000;) {
      try {
        if (!iterator.next(element)) return all;
        all.push_back(element.to_string());
      } catch (const Error& error) {
        all.push_back("! " + error.message());
      }
    }
    ADD_FAILURE() << "it does not end";
    return all;
  }
  static std::vector<std::string> all(const Dataset& dataset) {
    Iterator iterator(dataset);
    return rest(iterator);
  }
  // Byte strings, or errors.
  static std::vector<std::string> texts(const Dataset& dataset) {
    Iterator iterator(dataset);
    std::vector<std::string> result;
    for (Element element; result.size() < 10000;) {
      try {
        if (!iterator.next(element)) break;
        result.push_back(text(element.tensor()));
      } catch (const Error& error) {
        result.push_back("! " + error.message());
      }
    }
    return result;
  }
  // Saved at every position and restored, the same elements and errors follow; and saved again, the same
  // state.
  static void expect_restores_everywhere(const Dataset& dataset) {
    const std::vector<std::string> whole = all(dataset);
    for (size_t at = 0; at <= whole.size(); ++at) {
      Iterator before(dataset), after(dataset);
      Element element;
      for (size_t i = 0; i < at; ++i) {
        try {
          before.next(element);
        } catch (const Error&) {
        }
      }
      const IteratorState state = before.save();
      after.restore(state);
      const IteratorState again = after.save();
      ASSERT_EQ(state.size(), again.size());
      for (const auto& [name, value] : state)
        EXPECT_EQ(value.to_string(), again.at(name).to_string()) << name << " at " << at;
      EXPECT_EQ(rest(after), std::vector(whole.begin() + static_cast<ptrdiff_t>(at), whole.end()))
          << "restored at " << at;
    }
  }
  template <class F>
  static std::string error(F f) {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

 private:
  std::string folder_ = testing::TempDir() + "lockstep_files_" + std::to_string(getpid());
};

}  // namespace lockstep::data
