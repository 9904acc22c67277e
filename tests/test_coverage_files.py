"""Measurements that a killed program did not finish are left out of the whole."""

from pathlib import Path

from coverage import CoverageData

from tests.coverage_files import remove_unfinished


def test_only_what_was_written_to_its_end_is_combined(tmp_path: Path) -> None:
    whole = CoverageData(str(tmp_path / ".coverage.whole"))
    whole.add_lines({"a.py": [1, 2]})
    whole.write()
    empty = tmp_path / ".coverage.empty"
    empty.touch()
    cut = tmp_path / ".coverage.cut"
    cut.write_bytes((tmp_path / ".coverage.whole").read_bytes()[:100])
    other = tmp_path / "coverage.xml"
    other.touch()
    assert {*remove_unfinished(tmp_path)} == {empty, cut}
    assert {*tmp_path.iterdir()} == {tmp_path / ".coverage.whole", other}
