#include "cli/page/page.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::cli {
namespace {

// Inside a script no "<" can end it, or begin a comment.
std::string for_script(const std::string& json) {
  std::string text;
  for (const char letter : json) letter == '<' ? text += "\\u003c" : text += letter;
  return text;
}

std::string for_html(const std::string& words) {
  std::string text;
  for (const char letter : words) switch (letter) {
      case '<': text += "&lt;"; break;
      case '>': text += "&gt;"; break;
      case '&': text += "&amp;"; break;
      default: text += letter;
    }
  return text;
}

using Parts = std::vector<std::pair<std::string_view, std::string>>;

// Puts each part in the place of its name, "{{title}}". What was put in is not looked at again.
std::string filled(std::string_view form, const Parts& parts) {
  std::string text;
  while (true) {
    const size_t begin = form.find("{{");
    const size_t end = begin == std::string_view::npos ? begin : form.find("}}", begin);
    if (end == std::string_view::npos) return text += form;
    const std::string_view name = form.substr(begin + 2, end - begin - 2);
    text += form.substr(0, begin);
    const auto part =
        std::find_if(parts.begin(), parts.end(), [&](const auto& one) { return one.first == name; });
    if (part != parts.end()) text += part->second;
    form.remove_prefix(end + 2);
  }
}

std::string page_of(const std::string& title, const std::string& record, const char* connect) {
  using namespace page_files;
  std::string script;  // each file stands on those before it
  for (const std::string_view file : {text_js, plots_js, headline_js, curves_js, time_js, timeline_js,
                                      input_js, memory_js, kernels_js, scaling_js, page_js})
    script += file;
  return filled(page_html, {{"title", for_html(title)},
                            {"connect", connect},
                            {"style", std::string(page_css)},
                            {"record", for_script(record)},
                            {"licence", for_html(std::string(chart_licence_txt))},
                            {"chart", std::string(chart_min_js)},
                            {"script", script}});
}

}  // namespace

Json shown_json(const observe::RunRecord& record) {
  Json json = observe::to_json(record);
  json.set("seems_dead", observe::looks_dead(record));
  return json;
}

std::string page(const PageParts& parts) {
  Json json = parts.record ? shown_json(*parts.record) : Json::object();
  std::string title = parts.record ? parts.record->model : "";
  for (const auto& [name, part] : {std::pair{"scale", &parts.scale}, {"plan", &parts.plan}}) {
    if (part->is_null()) continue;
    json.set(name, *part);
    if (title.empty()) title = part->at("model").as_string();
  }
  return page_of((title.empty() ? "A run" : title) + " – Lockstep", json.dump(), "'none'");
}

std::string live_page() { return page_of("A run – Lockstep", "null", "'self'"); }

}  // namespace lockstep::cli
