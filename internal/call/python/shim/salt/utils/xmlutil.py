"""XML as dicts."""


def _name(tag):
    return tag.rpartition("}")[2]


def to_dict(xmltree, attr=False):
    """Return an element as a dict, with attributes if attr is set."""
    children = list(xmltree)
    if not children:
        if attr:
            value = {_name(k): v for k, v in xmltree.attrib.items()}
            if not value:
                return xmltree.text
            if xmltree.text:
                value[_name(xmltree.tag)] = xmltree.text
            return value
        return {_name(xmltree.tag): xmltree.text}
    out = {_name(k): v for k, v in xmltree.attrib.items()} if attr else {}
    for child in children:
        name = _name(child.tag)
        if len(child) or attr and child.attrib:
            value = to_dict(child, attr)
        else:
            value = child.text
        if name not in out:
            out[name] = value
        else:
            if not isinstance(out[name], list):
                out[name] = [out[name]]
            out[name].append(value if attr else to_dict(child))
    return out
